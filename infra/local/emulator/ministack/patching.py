"""What the patches share."""

import inspect


def replace(owner, name):
    """Replaces the function called name of owner: a module, a class or a dict.

    It decorates a function that gets the original and returns the replacement.
    The original must exist and have the parameters of the replacement, so that a
    new version of MiniStack that works in another way is noticed at start-up.
    """

    def decorate(make):
        functions = owner if isinstance(owner, dict) else vars(owner)
        original = functions.get(name)
        if not callable(original):
            raise LookupError(f"there is no function {name}")
        replacement = make(original)
        want, got = list(inspect.signature(replacement).parameters), list(inspect.signature(original).parameters)
        if want != got:
            raise TypeError(f"the function {name} has the parameters {got}, not {want}")
        if isinstance(owner, dict):
            owner[name] = replacement
        else:
            setattr(owner, name, replacement)
        return make

    return decorate
