"""Log events have ids, and an unread page has a token.

AWS: each event that FilterLogEvents returns has an eventId, which does not change. A
page has up to 10,000 events and 1 MB, and a nextToken if there are more (AWS,
"FilterLogEvents" in the CloudWatch Logs API Reference).

MiniStack: what functions log has no id, the size of a page is not limited, and the
events after the first 10,000 cannot be read.
"""

import json

from ministack.core.responses import error_response_json, json_response, new_uuid
from ministack.services import cloudwatch_logs
from patching import replace

MAX_EVENTS = 10_000
MAX_BYTES = 1 << 20


@replace(cloudwatch_logs, "_append_log_events")
def _(original):
    def _append_log_events(stream, events):
        for event in events:
            event.setdefault("eventId", new_uuid())
        original(stream, events)

    return _append_log_events


@replace(cloudwatch_logs, "_filter_log_events")
def _(original):
    def _filter_log_events(data):
        # The original reads limit events from the beginning; those before the token are
        # skipped here.
        token = data.get("nextToken", "0")
        if not token.isdigit():
            return error_response_json("InvalidParameterException", "The specified nextToken is invalid.", 400)
        begin, limit = int(token), min(data.get("limit", MAX_EVENTS), MAX_EVENTS)
        status, headers, body = original({**data, "limit": Unlimited(begin + limit + 1)})
        if status != 200:
            return status, headers, body
        events, size, end = json.loads(body)["events"], 0, begin
        while end < min(len(events), begin + limit):
            size += len(events[end]["message"].encode()) + 26
            if size > MAX_BYTES and end > begin:
                break
            end += 1
        answer = {"events": events[begin:end], "searchedLogStreams": []}
        if end < len(events):
            answer["nextToken"] = str(end)
        return json_response(answer)

    return _filter_log_events


class Unlimited(int):
    """A number that min(number, other) does not reduce."""

    def __gt__(self, other):
        return False
