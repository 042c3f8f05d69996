import json
from decimal import Decimal

def handler(event, context):
    for record in event["Records"]:
        detail = json.loads(record["body"], parse_float=Decimal)["detail"]
        data = detail.get("eventData")
        print(detail["eventId"], data.get("amount") if isinstance(data, dict) else None)
