"""Log lines have ids and become metrics, and alarms are evaluated on them.

AWS: each event that FilterLogEvents returns has an eventId, which does not change.
CloudWatch Logs extracts metrics from log events in the embedded metric format
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
An alarm has the state of its last evaluation periods, each of the metric with exactly
its dimensions, with a setting for periods without data
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html).

MiniStack gives no ids to what functions log, stores lines with metrics only, and evaluates
an alarm when a metric is put, over all dimensions, as one period, and not if there is no
data. Here the alarms are evaluated when they are described. AWS does that at least once a
minute, and reads more periods than these if some have no data.
"""

import json
import operator
import time

from ministack.core.responses import new_uuid
from ministack.services import cloudwatch, cloudwatch_logs
from patching import replace

COMPARISONS = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@replace(cloudwatch_logs, "_append_log_events")
def _(original):
    def _append_log_events(stream, events):
        for event in events:
            event.setdefault("eventId", new_uuid())
            if '"_aws"' in event["message"]:
                record(event["message"])
        original(stream, events)

    return _append_log_events


def record(message):
    """Stores the metrics of a line in the embedded metric format. Other lines have none."""
    try:
        line = json.loads(message)
        at = line["_aws"]["Timestamp"] / 1000
        for directive in line["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = {name: line[name] for name in names}
                for metric in directive["Metrics"]:
                    if metric["Name"] not in line:
                        continue
                    value = line[metric["Name"]]
                    values = value if isinstance(value, list) else [value]
                    cloudwatch._store_datum(directive["Namespace"], metric["Name"], dimensions, at,
                                            metric.get("Unit", "None"), None, values, None, None)
    except (KeyError, TypeError, ValueError):
        return  # AWS extracts nothing from a line that does not follow the specification


@replace(cloudwatch, "_describe_alarms")
def _(original):
    def _describe_alarms(params, cbor_data, is_cbor, is_json=False):
        cloudwatch._evaluate_all_alarms()
        return original(params, cbor_data, is_cbor, is_json)

    return _describe_alarms


@replace(cloudwatch, "_evaluate_alarm")
def _(original):
    def _evaluate_alarm(alarm):
        period, periods = int(alarm.get("Period") or 60), int(alarm.get("EvaluationPeriods") or 1)
        compare = COMPARISONS.get(alarm.get("ComparisonOperator"))
        if not alarm.get("MetricName") or not compare:
            return
        key = cloudwatch._dims_key(cloudwatch._dims_from_list(alarm.get("Dimensions") or []))
        points = cloudwatch._metrics.get((alarm["Namespace"], alarm["MetricName"], key), [])
        now, statistic = time.time(), alarm.get("ExtendedStatistic") or alarm.get("Statistic") or "Average"
        breaching = missing = 0
        for i in range(periods):
            end = now - i * period
            within = [p for p in points if end - period < p["Timestamp"] <= end]
            value = cloudwatch._stat_value(cloudwatch._calc_stats(within), statistic, within) if within else None
            if value is None:
                missing += 1
            elif compare(value, alarm.get("Threshold", 0)):
                breaching += 1
        treat = alarm.get("TreatMissingData") or "missing"
        if missing == periods and treat == "ignore":
            return
        if treat == "breaching":
            breaching += missing
        state = "ALARM" if breaching >= int(alarm.get("DatapointsToAlarm") or periods) else "OK"
        if missing == periods and treat == "missing":
            state = "INSUFFICIENT_DATA"
        before = alarm["StateValue"]
        if state != before:
            reason = f"{breaching} of the last {periods} periods breach the threshold"
            alarm.update(StateValue=state, StateReason=reason, StateUpdatedTimestamp=int(now))
            cloudwatch._record_history(alarm["AlarmName"], before, state, reason)
            cloudwatch._dispatch_alarm_actions(alarm, before, state, reason)
            cloudwatch._evaluate_parent_alarms(alarm)

    return _evaluate_alarm
