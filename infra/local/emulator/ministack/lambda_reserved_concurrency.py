"""Reserved concurrency of a template holds, for all versions of a function.

AWS: ReservedConcurrentExecutions is a property of AWS::Lambda::Function (AWS,
"AWS::Lambda::Function" in the CloudFormation Template Reference). It limits all
versions and aliases of a function together; further invocations are answered 429,
TooManyRequestsException (AWS, "Understanding Lambda function scaling" in the
Lambda Developer Guide).

MiniStack ignores the property, and the limit for versions other than $LATEST. It
enforces the limit that PutFunctionConcurrency sets for $LATEST.
"""

from ministack.services import lambda_svc
from ministack.services.cloudformation import provisioners
from patching import replace

handlers = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]


def reserve(name, properties):
    reserved = properties.get("ReservedConcurrentExecutions")
    lambda_svc._functions[name]["concurrency"] = None if reserved is None else int(reserved)


@replace(handlers, "create")
def _(original):
    def create(logical_id, props, stack_name):
        name, attributes = original(logical_id, props, stack_name)
        reserve(name, props)
        return name, attributes

    return create


@replace(handlers, "update")
def _(original):
    def update(physical_id, old_props, new_props, stack_name, logical_id=None):
        name, attributes = original(physical_id, old_props, new_props, stack_name, logical_id)
        reserve(name, new_props)
        return name, attributes

    return update


@replace(lambda_svc, "_reserved_concurrency")
def _(original):
    def _reserved_concurrency(func, config):
        return original(lambda_svc._functions.get(config.get("FunctionName")) or func, config)

    return _reserved_concurrency
