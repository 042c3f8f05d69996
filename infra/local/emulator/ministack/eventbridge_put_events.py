"""PutEvents rejects what EventBridge rejects, and keeps an entry's Time.

AWS ("PutEvents" and "PutEventsRequestEntry" in the EventBridge API Reference):

- A request has 1 to 10 entries, and their total size is less than 1 MB (256 KB in
  the China Regions). Otherwise the whole request fails with ValidationException.
- PutEvents only processes integers of 64 bits and JSON of up to 1,000 levels. The
  reference does not say what happens to others. Here they fail the whole
  request, which is the worst case for the entries beside them.
- Detail is a JSON object. Otherwise the entry fails with MalformedDetail.
- Source, DetailType (up to 128 characters) and Detail are required. Otherwise the
  entry fails, here with InvalidArgument, and the whole request if this is so for
  each of its entries.
- An event has the Time of its entry, and the time of the call only without one.

MiniStack checks the upper limit of 10 only, and replaces Time.
"""

import contextvars
import json
import math
import re
import sys

from ministack.core.responses import error_response_json, json_response
from ministack.services import eventbridge
from patching import replace

MAX_ENTRIES = 10
TOO_MANY_BYTES = 1 << 20
MAX_LEVELS = 1000
MAX_DETAIL_TYPE = 128

# Python's parser needs a frame for each level, and more than it has by default.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * MAX_LEVELS))


class NotProcessed(Exception):
    """The reason why EventBridge does not process a detail that is valid JSON."""


def size(entry):
    """The size of an entry (AWS, "Sending events with PutEvents" in the EventBridge User Guide)."""
    texts = [entry.get("Source"), entry.get("DetailType"), entry.get("Detail"), *(entry.get("Resources") or [])]
    return (14 if entry.get("Time") is not None else 0) + sum(len(t.encode("utf-8", "surrogatepass")) for t in texts if t)


def levels(text):
    deepest = level = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', text, re.DOTALL):
        if token[0] in "[{":
            level += 1
            deepest = max(deepest, level)
        elif token[0] in "]}":
            level -= 1
    return deepest


def int64(digits):
    # Python refuses to parse very long numbers, so the length comes first.
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 63:
        raise NotProcessed("an integer has more than 64 bits")
    return int(digits)


def invalid_literal(literal):
    raise ValueError(literal)


def is_object(detail):
    """Reports whether a detail is a JSON object. It raises NotProcessed if EventBridge would not process it."""
    if levels(detail) > MAX_LEVELS:
        raise NotProcessed(f"it is nested deeper than {MAX_LEVELS} levels")
    try:
        return isinstance(json.loads(detail, parse_int=int64, parse_constant=invalid_literal), dict)
    except ValueError:
        return False


def complete(entry):
    return all(entry.get(name) for name in ("Source", "DetailType", "Detail"))


def request_problem(entries):
    if not 1 <= len(entries) <= MAX_ENTRIES:
        return f"Value at 'entries' failed to satisfy constraint: Member must have 1 to {MAX_ENTRIES} elements, it has {len(entries)}"
    if not any(complete(entry) for entry in entries):
        return "Source, DetailType and Detail are required, and no entry has all of them"
    if sum(size(entry) for entry in entries) >= TOO_MANY_BYTES:
        return "Total size of the entries in the request is over the limit."
    for i, entry in enumerate(entries):
        try:
            is_object(entry.get("Detail") or "")
        except NotProcessed as problem:
            return f"Detail of entry {i} is not valid: {problem}"
    return None


def entry_problem(entry):
    for name in ("Source", "DetailType", "Detail"):
        if not entry.get(name):
            return "InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is a required argument."
    if len(entry["DetailType"]) > MAX_DETAIL_TYPE:
        return "InvalidArgument", f"Parameter DetailType is not valid. Reason: it has more than {MAX_DETAIL_TYPE} characters."
    if not is_object(entry["Detail"]):
        return "MalformedDetail", "Detail is malformed."
    return None


time_of_entry = contextvars.ContextVar("time_of_entry", default=None)


@replace(eventbridge, "_now_ts")
def _(original):
    def _now_ts():
        time = time_of_entry.get()
        return original() if time is None else time

    return _now_ts


@replace(eventbridge, "_put_events")
def _(original):
    def _put_events(data, allow_aws_source=False):
        entries = data.get("Entries") or []
        if problem := request_problem(entries):
            return error_response_json("ValidationException", problem, 400)
        results = []
        for entry in entries:
            if problem := entry_problem(entry):
                results.append({"ErrorCode": problem[0], "ErrorMessage": problem[1]})
                continue
            time = entry.get("Time")
            token = time_of_entry.set(None if time is None else math.floor(time))
            try:
                _, _, body = original({**data, "Entries": [entry]}, allow_aws_source)
            finally:
                time_of_entry.reset(token)
            results += json.loads(body)["Entries"]
        return json_response({"FailedEntryCount": sum("ErrorCode" in r for r in results), "Entries": results})

    return _put_events
