"""Web pages cannot use the emulator.

MiniStack: it answers every page of every browser of this machine (CORS with *) and
every Host, and it runs functions as processes of this machine. Its root key is known.
So a page could read everything in it, and start programs. A function's Runtime API,
which has a port of its own, answers every page, too.

Browsers add Origin or Sec-Fetch-Site to a request from a page; the SDKs, the CDK and
the functions do not. Without these two headers, only a page under a name that
resolves to 127.0.0.1 could send a request (DNS rebinding), and Host then has that name.
"""

import re

from ministack import app as ministack
from ministack.core import lambda_runtime
from patching import replace

# This machine, buckets and function URLs. Nobody but AWS can let a name below
# amazonaws.com or on.aws resolve to 127.0.0.1, and names below localhost always do
# (RFC 6761, section 6.3).
HOST = re.compile(
    r"(127\.0\.0\.1|localhost|[a-z0-9.-]+\.s3(\.[a-z0-9-]+)?\.amazonaws\.com|[a-z0-9.-]+\.localhost"
    r"|[a-z0-9]+\.lambda-url\.[a-z0-9-]+\.on\.aws)(:[0-9]+)?",
    re.IGNORECASE | re.ASCII,
)


def is_refused(headers):
    """Reports whether a page could have sent a request with these headers: pairs of lower-case name and value."""
    hosts = [value for name, value in headers if name == "host"]
    return (
        any(name in ("origin", "sec-fetch-site") for name, _ in headers)
        or len(hosts) != 1
        or not HOST.fullmatch(hosts[0])
    )


@replace(ministack, "app")
def _(original):
    async def app(scope, receive, send):
        async def send_without_cors(message):
            if "headers" in message:
                headers = [h for h in message["headers"] if not h[0].lower().startswith(b"access-control-")]
                message = {**message, "headers": headers}
            await send(message)

        if scope["type"] == "lifespan":
            await original(scope, receive, send)
        elif not is_refused([(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]):
            await original(scope, receive, send_without_cors)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # answered with 403, as it is not accepted
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"the emulator does not serve web pages\n"})

    return app


@replace(lambda_runtime.ProvidedWorker, "_build_handler_class")
def _(original):
    def _build_handler_class(self, generation, pending):
        class Handler(original(self, generation, pending)):
            def parse_request(self):
                if not super().parse_request():
                    return False
                if is_refused([(name.lower(), value) for name, value in self.headers.items()]):
                    self.send_error(403)
                    return False
                return True

        return Handler

    return _build_handler_class
