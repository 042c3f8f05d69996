"""Requests count as sent with TLS in policies.

AWS: the endpoints that the SDKs and the CLI use by default take TLS only, so
aws:SecureTransport is true for every request of this project (AWS, "AWS global
condition context keys" in the IAM User Guide). Policies deny requests without
TLS, as that of the CDK's bootstrap bucket does.

MiniStack: the endpoint of a local run is plain HTTP on the loopback interface,
and aws:SecureTransport is true only if a proxy adds X-Forwarded-Proto.
"""

from ministack import app
from patching import replace


@replace(app, "pin_request_origin")
def _(original):
    def pin_request_origin(source_ip, secure_transport):
        original(source_ip, True)

    return pin_request_origin
