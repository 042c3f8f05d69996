"""Requests are authorized for the action and the resource that AWS names.

AWS, in the Service Authorization Reference where no other page is named:

- Except for tags, policies for a log group have :* after its name ("Overview of managing access
  permissions to your CloudWatch Logs resources" in the CloudWatch Logs User Guide).
- PutTargets, RemoveTargets and the tags of a rule are authorized for the rule, DescribeEventBus for the bus.
- The ARN of a dashboard has no Region.
- A batch of SQS is authorized as a single request ("Amazon SQS API permissions" in the SQS Developer Guide).
- A statement of PartiQL, alone or in a batch, needs the permission of what it does, on its table
  (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html). AWS does not document whether a
  statement that is denied fails alone or with its batch; here the batch fails.
- A request in Smithy RPC v2 CBOR names its operation in the path
  (https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html).

MiniStack checks other resources and actions, some of which do not exist, and allows requests in CBOR to everybody.
"""

import json
import re

import cbor2
from ministack.core import iam_actions
from patching import replace

OPERATION = re.compile(r"/service/\w+/operation/(\w+)")
STATEMENT = re.compile(r"""\s*(INSERT\s+INTO|UPDATE|DELETE\s+FROM|SELECT\b.*?\bFROM)\s+"?([^"\s.]+)""", re.I | re.S)


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
        if service == "events":
            request, prefix = json.loads(body), f"arn:aws:events:{region}:{account_id}:"
            if tags:
                return request.get("ResourceARN") or arn
            if action == "DescribeEventBus":
                return f"{prefix}event-bus/{request.get('Name')}"
            if action in ("PutTargets", "RemoveTargets"):
                bus = request.get("EventBusName") or "default"
                return f"{prefix}rule/{bus.rpartition('/')[2]}/{request.get('Rule')}"
        return arn

    return extract_resource_arn


@replace(iam_actions, "extract_iam_action")
def _(original):
    def extract_iam_action(service, method, path, headers, body, query_params):
        action = original(service, method, path, headers, body, query_params)
        if service == "sqs" and action:
            return action.removesuffix("Batch")
        if service == "monitoring" and not action and (operation := OPERATION.fullmatch(path)):
            return f"cloudwatch:{operation[1]}"
        return action

    return extract_iam_action


@replace(iam_actions, "dynamodb_transaction_checks")
def _(original):
    def dynamodb_transaction_checks(iam_action, body, region, account_id):
        request = json.loads(body or b"{}")
        if iam_action == "dynamodb:ExecuteStatement":
            request = {"Statements": [request]}
        elif iam_action != "dynamodb:BatchExecuteStatement":
            return original(iam_action, body, region, account_id)
        found = [STATEMENT.match(statement["Statement"]) for statement in request["Statements"]]
        return list({
            ("dynamodb:PartiQL" + f[1].split()[0].capitalize(), f"arn:aws:dynamodb:{region}:{account_id}:table/{f[2]}")
            for f in found if f  # what is no statement is rejected later
        })

    return dynamodb_transaction_checks
