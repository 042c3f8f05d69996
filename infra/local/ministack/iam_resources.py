"""Requests are authorized for the resource that AWS names.

AWS: except for tags, policies for a log group have :* after its name (AWS, "Overview of
managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs
User Guide). The tags of a rule are those of its ARN (AWS, "Actions, resources, and
condition keys for Amazon EventBridge" in the Service Authorization Reference).

MiniStack checks for a log group without :*, and for tags of EventBridge that any
resource is allowed.
"""

import json

from ministack.core import iam_actions
from patching import replace


@replace(iam_actions, "extract_resource_arn")
def _(original):
    def extract_resource_arn(service, method, path, headers, body, query_params, region, account_id):
        arn = original(service, method, path, headers, body, query_params, region, account_id)
        action = headers.get("x-amz-target", "").rsplit(".", 1)[-1]
        tags = action in ("TagResource", "UntagResource", "ListTagsForResource")
        if service == "logs" and not tags and ":log-group:" in arn and not arn.endswith(":*"):
            return arn + ":*"
        if service == "events" and tags:
            return json.loads(body).get("ResourceARN") or arn
        return arn

    return extract_resource_arn
