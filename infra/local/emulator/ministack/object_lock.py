"""Buckets of stacks have Object Lock, and then uploads need a checksum.

AWS: a bucket has the ObjectLockConfiguration of its stack ("AWS::S3::Bucket" in the CloudFormation
reference). An upload of an object that is to be locked needs Content-MD5 or a checksum of the SDK
("PutObject" in the S3 API reference; "Considerations for Object Lock" in the S3 User Guide). AWS
documents the status 400 of InvalidRequest, not its text.

MiniStack: CloudFormation ignores Object Lock, and an upload needs no checksum. It does protect the
versions of locked objects.
"""

from ministack.services import s3
from ministack.services.cloudformation import provisioners
from patching import replace


@replace(provisioners, "_s3_apply_configurations")
def _(original):
    def _s3_apply_configurations(name, props, old_props=None):
        original(name, props, old_props)
        lock = props.get("ObjectLockConfiguration")
        if lock:
            retention = (lock.get("Rule") or {}).get("DefaultRetention")
            if retention and "Days" in retention:
                retention = {**retention, "Days": int(retention["Days"])}
            s3._bucket_object_lock[name] = {"enabled": True, "default_retention": retention}

    return _s3_apply_configurations


@replace(s3, "_put_object")
def _(original):
    def _put_object(bucket_name, key, body, headers):
        locked = (s3._bucket_object_lock.get(bucket_name) or {}).get("default_retention")
        named = any(h == "content-md5" or h.startswith(("x-amz-checksum-", "x-amz-sdk-checksum-")) for h in headers)
        if locked and not named and "x-amz-trailer" not in headers:
            return s3._error("InvalidRequest", "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object "
                             "requests with Object Lock parameters", 400)
        return original(bucket_name, key, body, headers)

    return _put_object
