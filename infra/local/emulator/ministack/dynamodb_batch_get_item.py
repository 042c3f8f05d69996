"""BatchGetItem returns a part of the items if they are many or large.

AWS: a request for more than 100 items fails with ValidationException. A response
has up to 16 MB, and up to 1 MB of one partition; the keys of the rest are in
UnprocessedKeys (AWS, "BatchGetItem" in the DynamoDB API Reference). A caller does
not know which items share a partition. Here all items of a table do, so that the
16 MB are not reached with fewer than 16 tables.

MiniStack counts the items of each table for itself and returns all of them.
"""

import json

from ministack.core.responses import error_response_json, json_response
from ministack.services import dynamodb
from patching import replace

MAX_ITEMS = 100
MAX_PARTITION_BYTES = 1 << 20


@replace(dynamodb, "_batch_get_item")
def _(original):
    def _batch_get_item(data):
        requested = data.get("RequestItems") or {}
        if sum(len(r.get("Keys") or []) for r in requested.values()) > MAX_ITEMS:
            return error_response_json("ValidationException", "Too many items requested for the BatchGetItem call", 400)
        status, headers, body = original(data)
        if status != 200:
            return status, headers, body
        now, later = {}, {}
        for name, request in requested.items():
            table = dynamodb._tables[dynamodb._normalize_table_name(name)]
            room = MAX_PARTITION_BYTES
            for key in request["Keys"]:
                partition, sort, _ = dynamodb._resolve_table_key_values(table, key, allow_extra=False)
                size = dynamodb._item_size_bytes(table["items"].get(partition, {}).get(sort))
                fits = name not in later and (name not in now or size <= room)
                part = now if fits else later
                part.setdefault(name, {**request, "Keys": []})["Keys"].append(key)
                room -= size
        if not later:
            return status, headers, body
        _, _, body = original({**data, "RequestItems": now})
        return json_response({**json.loads(body), "UnprocessedKeys": later})

    return _batch_get_item
