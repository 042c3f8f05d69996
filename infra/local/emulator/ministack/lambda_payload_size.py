"""Lambda rejects events and answers that are too large.

AWS: a synchronous invocation takes and returns 6 MB, an asynchronous one takes
1 MB (AWS, "Lambda quotas" in the Lambda Developer Guide). Invoke answers larger
requests with 413, RequestTooLargeException (AWS, "Invoke" in the Lambda API
Reference). Its message is: Request must be smaller than 6291456 bytes for the
InvokeFunction operation.

A function URL makes an event of a request, in which the body is a JSON string:
escaped, or base64-encoded if its Content-Type is not one of text. The limit holds
for this event. A larger one is answered with 413 before the function runs.
AWS does not document how it escapes the body. Here only what JSON requires is
escaped.

MiniStack has no limits.
"""

import json
import re

from ministack.core.responses import error_response_json
from ministack.services import lambda_svc
from patching import replace

TOO_LARGE = 6 << 20
TOO_LARGE_ASYNCHRONOUS = 1 << 20
LARGEST_ANSWER = 6 << 20


def size(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def message(limit):
    return f"Request must be smaller than {limit} bytes for the InvokeFunction operation"


@replace(lambda_svc, "handle_request")
def _(original):
    async def handle_request(method, path, headers, body, query_params):
        if method == "POST" and re.search(r"/functions/[^/]+/invocations/?$", path):
            asynchronous = headers.get("x-amz-invocation-type") == "Event"
            limit = TOO_LARGE_ASYNCHRONOUS if asynchronous else TOO_LARGE
            if len(body) >= limit:
                return error_response_json("RequestTooLargeException", message(limit), 413)
        return await original(method, path, headers, body, query_params)

    return handle_request


class EventTooLarge(Exception):
    pass


@replace(lambda_svc, "_build_function_url_event")
def _(original):
    def _build_function_url_event(url_id, account_id, region, method, path, headers, body, query_params, source_ip="127.0.0.1", anonymous=False, trace_root=""):
        event = original(url_id, account_id, region, method, path, headers, body, query_params, source_ip, anonymous, trace_root)
        if size(event) >= TOO_LARGE:
            raise EventTooLarge
        return event

    return _build_function_url_event


@replace(lambda_svc, "handle_function_url_request")
def _(original):
    async def handle_function_url_request(url_id, method, path, headers, body, query_params, resolved=None, source_ip=None):
        try:
            return await original(url_id, method, path, headers, body, query_params, resolved, source_ip)
        except EventTooLarge:
            return 413, {"Content-Type": "application/json"}, json.dumps({"Message": message(TOO_LARGE)}).encode()

    return handle_function_url_request


@replace(lambda_svc, "_execute_function")
def _(original):
    def _execute_function(func, event):
        result = original(func, event)
        body = result.get("body")
        if (len(body) if isinstance(body, bytes) else size(body)) <= LARGEST_ANSWER:
            return result
        return {**result, "error": True, "function_error": "Unhandled", "body": {
            "errorType": "Function.ResponseSizeTooLarge",
            "errorMessage": f"Response payload size exceeded maximum allowed payload size ({LARGEST_ANSWER} bytes).",
        }}

    return _execute_function
