"""A process of a function that waits for an invocation uses no CPU.

MiniStack: it looks ten times a second for whether the process must end. It kills the
process then, so the request of the process need not be answered.
"""

from ministack.core import lambda_runtime
from patching import replace


@replace(lambda_runtime.ProvidedWorker, "_build_handler_class")
def _(original):
    def _build_handler_class(self, generation, pending):
        get = pending.get
        pending.get = lambda timeout: get(timeout=10)
        return original(self, generation, pending)

    return _build_handler_class
