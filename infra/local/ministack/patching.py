"""What the patches share."""

import inspect


def replace(owner, name):
    """Replaces the function called name of owner, a module or a class.

    It decorates a function that gets the original and returns the replacement.
    The original must exist and have the parameters of the replacement, so that a
    new version of MiniStack that works in another way is noticed at start-up.
    """

    def decorate(make):
        original = getattr(owner, name, None)
        if not callable(original):
            raise LookupError(f"{owner.__name__} has no function {name}")
        replacement = make(original)
        want, got = list(inspect.signature(replacement).parameters), list(inspect.signature(original).parameters)
        if want != got:
            raise TypeError(f"{owner.__name__}.{name} has the parameters {got}, not {want}")
        setattr(owner, name, replacement)
        return make

    return decorate
