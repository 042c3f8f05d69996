"""Starts moto, an emulator of AWS, for the tests of payhook replay.

It listens on 127.0.0.1, prints "port NUMBER", and ends when its standard input is
closed. It has no IAM, and corrects how moto replays an archive: moto replays every event
of the archive to every rule.
"""

import sys
import threading

from moto.events import models
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

describe_short = models.Replay.describe_short


def replay_events(replay, archive):
    """Replays the events whose time is in the range, to the rules of FilterArns
    (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_StartReplay.html,
    https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_ReplayDestination.html).
    """
    rules = replay.destination.get("FilterArns") or []
    backend = models.events_backends[replay.account_id][replay.region]
    bus = backend.describe_event_bus(replay.destination["Arn"].split("/")[-1])
    replay.last_replayed = None
    for event in sorted(archive.events, key=lambda event: event["time"]):
        if not replay.event_start_time <= event["time"] < replay.event_end_time:
            continue
        replay.last_replayed = event["time"]
        for rule in bus.rules.values():
            if not rules or rule.arn in rules:
                rule.send_to_targets({**event, "replay-name": replay.name}, transform_input=False)
    replay.state = models.ReplayState.COMPLETED
    replay.end_time = models.unix_time()


def describe(replay):
    """Describes a replay with the time of the last event that was replayed, if there is one
    (https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_DescribeReplay.html).
    """
    result = describe_short(replay)
    if replay.last_replayed is not None:
        result["EventLastReplayedTime"] = replay.last_replayed
    return result


def main():
    models.Replay.replay_events = replay_events
    models.Replay.describe_short = describe
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("port", server.server_port, flush=True)
    sys.stdin.read()


main()
