"""S3 tells only those that may list a bucket which objects it does not have.

AWS: a GetObject or HeadObject of a missing object is answered with 404 if the
caller has s3:ListBucket on the bucket, and with 403 otherwise (AWS, "GetObject"
and "HeadObject" in the S3 API reference). AWS does not say that a permission
with a condition on s3:prefix is enough: such a request has no prefix. It does
not count here either.

MiniStack: it answers 404 to everybody.
"""

import uuid

from ministack.app import AUTH
from ministack.core.iam_actions import access_denied_response
from ministack.core.iam_evaluator import AuthError, enforce
from ministack.core.router import extract_access_key_id, extract_region
from ministack.services import s3
from patching import replace


def unless_listed(response, bucket, headers, query_params):
    if not AUTH or response[0] != 404 or bucket not in s3._buckets:
        return response
    denied = enforce(
        extract_access_key_id(headers, query_params), "s3:ListBucket", "s3",
        extract_region(headers, query_params), resource_arn=f"arn:aws:s3:::{bucket}",
    )
    if not denied or isinstance(denied, AuthError):
        return response
    return access_denied_response(
        "s3", "s3:ListBucket", denied.principal_arn, str(uuid.uuid4()), headers=headers,
        explicit_deny=denied.decision == "Deny", resource_policy_arn=denied.resource_policy_arn,
    )


@replace(s3, "_get_object")
def _(original):
    def _get_object(bucket_name, key, headers, query_params=None):
        return unless_listed(original(bucket_name, key, headers, query_params), bucket_name, headers, query_params)

    return _get_object


@replace(s3, "_head_object")
def _(original):
    def _head_object(bucket_name, key, headers=None, query_params=None):
        response = original(bucket_name, key, headers, query_params)
        return unless_listed(response, bucket_name, headers or {}, query_params)

    return _head_object
