"""Each statement, alone or in a batch, needs the permission of what it does, on its table.

AWS: INSERT needs dynamodb:PartiQLInsert, UPDATE dynamodb:PartiQLUpdate, and so on
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-iam.html). AWS does
not document whether a statement that is denied fails alone or with its batch; here the
batch fails.

MiniStack asks for dynamodb:ExecuteStatement and dynamodb:BatchExecuteStatement, which are no actions of IAM.
"""

import json
import re

from ministack.core import iam_actions
from patching import replace

STATEMENT = re.compile(r"""\s*(INSERT\s+INTO|UPDATE|DELETE\s+FROM|SELECT\b.*?\bFROM)\s+"?([^"\s.]+)""", re.I | re.S)


@replace(iam_actions, "dynamodb_transaction_checks")
def _(original):
    def dynamodb_transaction_checks(iam_action, body, region, account_id):
        request = json.loads(body or b"{}")
        if iam_action == "dynamodb:ExecuteStatement":
            request = {"Statements": [request]}
        elif iam_action != "dynamodb:BatchExecuteStatement":
            return original(iam_action, body, region, account_id)
        checks = []
        for statement in request["Statements"]:
            found = STATEMENT.match(statement["Statement"])
            if found:  # what is no statement is rejected later
                action = "dynamodb:PartiQL" + found[1].split()[0].capitalize()
                arn = f"arn:aws:dynamodb:{region}:{account_id}:table/{found[2]}"
                if (action, arn) not in checks:
                    checks.append((action, arn))
        return checks

    return dynamodb_transaction_checks
