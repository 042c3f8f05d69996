"""A rule's targets get an event's detail and Time as they were put on the bus.

AWS: EventBridge passes the detail on as a part of the event (AWS, "Events in
Amazon EventBridge" in the EventBridge User Guide). Nothing is documented about
the digits of numbers. The time of an event is the Time of its entry, and that of
the call only without one ("PutEventsRequestEntry" in the EventBridge API Reference).

MiniStack replaces Time. It parses the detail and writes it again for each target:
1234567890.10 becomes 1234567890.1, and 1E3 becomes 1000.0. The bytes that Payhook
sends are then not visible behind a rule. It does so again for a function's event.
Here functions of the runtimes provided.* get the unchanged text, those of other
runtimes do not.
"""

import json
import types

from ministack.core import lambda_runtime
from ministack.services import eventbridge, lambda_svc
from patching import replace


class Event(dict):
    """A parsed event that remembers the text it was parsed from."""

    def __init__(self, text):
        super().__init__(json.loads(text))
        self.text = text


class Detail(str):
    """A detail with the Time of its entry."""


@replace(eventbridge, "_put_events")
def _(original):
    def _put_events(data, allow_aws_source=False):
        for entry in data.get("Entries") or []:
            if entry.get("Time") is not None:
                entry["Detail"] = Detail(entry["Detail"])
                entry["Detail"].time = int(entry["Time"])
        return original(data, allow_aws_source)

    return _put_events


@replace(eventbridge, "_pattern_event_view")
def _(original):
    def _pattern_event_view(event):
        if isinstance(event.get("Detail"), Detail):
            event["Time"] = event["Detail"].time
        return original(event)

    return _pattern_event_view


@replace(eventbridge, "_invoke_target")
def _(original):
    def _invoke_target(target, event, rule, view=None):
        # A bus as a target gets the event itself, which holds the detail as text.
        given = target.get("InputTransformer") or target.get("Input") or ":event-bus/" in target.get("Arn", "")
        if not given and isinstance(event.get("Detail"), str):
            view = view or eventbridge._pattern_event_view(event)
            path = target.get("InputPath") or "$"
            if path == "$":
                envelope = json.dumps(view.envelope(), ensure_ascii=False, separators=(",", ":"))
                target = {**target, "InputPath": None, "Input": f'{envelope[:-1]},"detail":{event["Detail"]}}}'}
            elif path == "$.detail":
                target = {**target, "InputPath": None, "Input": event["Detail"]}
        return original(target, event, rule, view)

    return _invoke_target


@replace(eventbridge, "_dispatch_to_lambda")
def _(original):
    def _dispatch_to_lambda(arn, payload):
        func, config, _ = lambda_svc._get_func_record_for_ref(arn)
        if not func or not config or not isinstance(json.loads(payload), dict):
            return original(arn, payload)
        lambda_svc.invoke_async_with_retry(lambda_svc._execution_record_for_config(func, config), Event(payload))

    return _dispatch_to_lambda


def dumps(value, **options):
    return value.text if isinstance(value, Event) else json.dumps(value, **options)


lambda_runtime.json = types.SimpleNamespace(**{**vars(json), "dumps": dumps})
