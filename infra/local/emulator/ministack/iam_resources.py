"""Requests are authorized for the action and the resource that AWS names.

AWS: except for tags, policies for a log group have :* after its name (AWS, "Overview of
managing access permissions to your CloudWatch Logs resources" in the CloudWatch Logs
User Guide). PutTargets, RemoveTargets and the tags of a rule are authorized for the rule
(AWS, "Actions, resources, and condition keys for Amazon EventBridge" in the Service
Authorization Reference), and DescribeEventBus for the bus. The ARN of a dashboard has no Region ("... for Amazon
CloudWatch"). A batch of SQS is authorized as a single request (AWS, "Amazon
SQS API permissions: Actions and resource reference" in the SQS Developer Guide). A
request in Smithy RPC v2 CBOR names its operation in the path
(https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html).

MiniStack checks for a log group without :*, for targets that the bus is allowed, for
tags of EventBridge that any resource is allowed, for DescribeEventBus that a rule is, and
for a batch another action.
It does not read requests in CBOR, and allows them to everybody.
"""

import json
import re

import cbor2
from ministack.core import iam_actions
from patching import replace

OPERATION = re.compile(r"/service/\w+/operation/(\w+)")


@replace(iam_actions, "extract_resource_arn")
def _(original):
    def extract_resource_arn(service, method, path, headers, body, query_params, region, account_id):
        if service == "monitoring" and OPERATION.fullmatch(path):
            request = cbor2.loads(body) if body else {}
            if name := request.get("DashboardName"):
                return f"arn:aws:cloudwatch::{account_id}:dashboard/{name}"
            name = request.get("AlarmName")
            return f"arn:aws:cloudwatch:{region}:{account_id}:alarm:{name}" if name else "*"
        arn = original(service, method, path, headers, body, query_params, region, account_id)
        action = headers.get("x-amz-target", "").rsplit(".", 1)[-1]
        tags = action in ("TagResource", "UntagResource", "ListTagsForResource")
        if service == "logs" and not tags and ":log-group:" in arn and not arn.endswith(":*"):
            return arn + ":*"
        if service == "events" and tags:
            return json.loads(body).get("ResourceARN") or arn
        if service == "events" and action == "DescribeEventBus":
            return f"arn:aws:events:{region}:{account_id}:event-bus/{json.loads(body).get('Name')}"
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
        if service == "monitoring" and not action:
            operation = OPERATION.fullmatch(path)
            return f"cloudwatch:{operation[1]}" if operation else None
        return action

    return extract_iam_action
