"""Requests are authorized for the action and the resource that AWS names.

AWS: except for tags, policies for a log group have :* after its name (AWS, "Overview of
managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs
User Guide). PutTargets, RemoveTargets and the tags of a rule are authorized for the rule
(AWS, "Actions, resources, and condition keys for Amazon EventBridge" in the Service
Authorization Reference). A batch of SQS is authorized as a single request (AWS, "Amazon
SQS API permissions: Actions and resource reference" in the SQS Developer Guide).

MiniStack checks for a log group without :*, for targets that the bus is allowed, for
tags of EventBridge that any resource is allowed, and for a batch an action of its own.
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
        if service == "events" and action in ("PutTargets", "RemoveTargets"):
            request = json.loads(body)
            bus = request.get("EventBusName") or "default"
            return f"arn:aws:events:{region}:{account_id}:rule/{bus.rpartition('/')[2]}/{request.get('Rule')}"
        return arn

    return extract_resource_arn


@replace(iam_actions, "extract_iam_action")
def _(original):
    def extract_iam_action(service, method, path, headers, body, query_params):
        action = original(service, method, path, headers, body, query_params)
        if service == "sqs" and action:
            return action.removesuffix("Batch")
        return action

    return extract_iam_action
