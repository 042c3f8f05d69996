"""A secret has at most 100 versions, and a version is never changed.

AWS: "Secrets Manager removes unlabeled versions when there are more than 100, but
it does not remove versions created less than 24 hours ago" (AWS, "AWS Secrets
Manager quotas" in the Secrets Manager User Guide). A request that would exceed
the quota fails with LimitExceededException. PutSecretValue with the
ClientRequestToken of a version succeeds and does nothing if the value is the
same, and fails if it is not (AWS, "PutSecretValue" in the Secrets Manager API
Reference).

MiniStack removes a version as soon as it has no label, and PutSecretValue
overwrites the version of its ClientRequestToken.
"""

import time

from ministack.core.responses import error_response_json, json_response
from ministack.services import secretsmanager
from patching import replace

QUOTA = 100
MIN_AGE = 24 * 60 * 60


def make_room(secret):
    """Removes the oldest versions that may be removed until there is room for one more, and reports whether there is."""
    versions = secret["Versions"]
    removable = sorted(
        (v for v in versions if not versions[v]["Stages"] and versions[v]["CreatedDate"] <= time.time() - MIN_AGE),
        key=lambda v: versions[v]["CreatedDate"],
    )
    while len(versions) >= QUOTA and removable:
        del versions[removable.pop(0)]
    return len(versions) < QUOTA


def too_many_versions():
    return error_response_json("LimitExceededException", f"The secret has {QUOTA} versions, and none of them can be removed.", 400)


@replace(secretsmanager, "_apply_current_promotion")
def _(original):
    def _apply_current_promotion(secret, new_vid):
        before = dict(secret["Versions"])
        original(secret, new_vid)
        secret["Versions"] = before | secret["Versions"]

    return _apply_current_promotion


@replace(secretsmanager, "_put_secret_value")
def _(original):
    def _put_secret_value(data):
        _, secret = secretsmanager._resolve(data.get("SecretId"))
        if secret and not secret.get("DeletedDate"):
            vid = data.get("ClientRequestToken")
            if version := secret["Versions"].get(vid):
                if any(version[name] != data.get(name) for name in ("SecretString", "SecretBinary")):
                    return error_response_json("ResourceExistsException", "You can't change the value of a version that exists.", 400)
                return json_response({"ARN": secret["ARN"], "Name": secret["Name"], "VersionId": vid, "VersionStages": version["Stages"]})
            if not make_room(secret):
                return too_many_versions()
        return original(data)

    return _put_secret_value


@replace(secretsmanager, "_update_secret")
def _(original):
    def _update_secret(data):
        _, secret = secretsmanager._resolve(data.get("SecretId"))
        if secret and not secret.get("DeletedDate") and ("SecretString" in data or "SecretBinary" in data):
            if not make_room(secret):
                return too_many_versions()
        return original(data)

    return _update_secret
