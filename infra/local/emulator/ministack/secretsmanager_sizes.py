"""A secret value has 1 to 65,536 bytes, a ClientRequestToken 32 to 64 characters.

AWS: PutSecretValue and UpdateSecret reject others (AWS, "PutSecretValue" and
"UpdateSecret" in the Secrets Manager API Reference); here with
InvalidParameterException, of the errors that both name the one for the value of
a parameter.

MiniStack takes any.
"""

import base64

from ministack.core.responses import error_response_json
from ministack.services import secretsmanager
from patching import replace

MAX_VALUE = 65536


def problem(data):
    for name, decode in ("SecretString", str.encode), ("SecretBinary", base64.b64decode):
        value = data.get(name)
        if value is not None and not 1 <= len(decode(value)) <= MAX_VALUE:
            return f"{name} must have 1 to {MAX_VALUE} bytes."
    token = data.get("ClientRequestToken")
    if token is not None and not 32 <= len(token) <= 64:
        return "ClientRequestToken must have 32 to 64 characters."
    return None


def checked(original):
    def handler(data):
        if text := problem(data):
            return error_response_json("InvalidParameterException", text, 400)
        return original(data)

    return handler


replace(secretsmanager, "_put_secret_value")(checked)
replace(secretsmanager, "_update_secret")(checked)
