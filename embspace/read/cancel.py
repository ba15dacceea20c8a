"""Whether anybody still waits for what a thread works on: a long search asks now and then."""

import threading

_here = threading.local()


class GivenUpError(Exception):
    """Ends work in a thread that nobody waits for any more; it reaches nobody."""


def works_until(given_up: threading.Event) -> None:
    """From now on, this thread's work may be given up by that event."""
    _here.given_up = given_up


def stop_if_given_up() -> None:
    """Raise GivenUpError where this thread's work was given up."""
    given_up = getattr(_here, "given_up", None)
    if given_up is not None and given_up.is_set():
        raise GivenUpError
