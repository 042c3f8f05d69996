"""Firehose rejects what AWS rejects, and compresses; buckets of stacks have Object Lock.

AWS ("PutRecordBatch" in the Firehose API Reference, and "AWS::S3::Bucket" in the
CloudFormation reference):

- A request has 1 to 500 records of at most 1,000 KiB, and at most 4 MiB. Otherwise
  it fails. AWS documents the limits but not all errors.
- With CompressionFormat GZIP, an object is a gzip file.
- A bucket has the ObjectLockConfiguration of its stack.

MiniStack: a record that is too large fails alone, the size of the request is not
checked, objects are not compressed, and CloudFormation ignores Object Lock. It
delivers each record at once, as an object of its own.
"""

import base64
import gzip

from ministack.core.responses import error_response_json
from ministack.services import firehose, s3
from ministack.services.cloudformation import provisioners
from patching import replace

MAX_RECORDS = 500
MAX_RECORD = 1000 << 10
MAX_REQUEST = 4 << 20


@replace(firehose._HANDLERS, "PutRecordBatch")
def _(original):
    def _put_record_batch(data):
        sizes = [len(base64.b64decode(r.get("Data", ""))) for r in data.get("Records") or []]
        if not 1 <= len(sizes) <= MAX_RECORDS or max(sizes) > MAX_RECORD:
            return error_response_json("ValidationException", "1 to 500 records of at most 1,024,000 bytes", 400)
        if sum(sizes) > MAX_REQUEST and data.get("DeliveryStreamName") in firehose._streams:
            return error_response_json("InvalidArgumentException", "Records size exceeds 4 MB limit", 400)
        return original(data)

    return _put_record_batch


@replace(firehose, "_deliver_to_s3")
def _(original):
    def _deliver_to_s3(stream, dest, record_data, lambda_keys=None):
        if dest["config"].get("CompressionFormat") == "GZIP":
            record_data = gzip.compress(record_data)
        return original(stream, dest, record_data, lambda_keys)

    return _deliver_to_s3


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
