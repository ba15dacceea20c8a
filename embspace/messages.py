"""Other libraries' messages: errors made fit to stand in a sentence of ours, log lines silenced."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


def first_line(error: Exception, *, length: int = 200) -> str:
    """The first line of an error's message, cut to a length; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:length].rstrip(". ")


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no log lines from transformers while it loads."""
    from transformers.utils import logging as hf

    level, bars = hf.get_verbosity(), hf.is_progress_bar_enabled()
    hf.set_verbosity(logging.CRITICAL)
    hf.disable_progress_bar()
    try:
        yield
    finally:
        hf.set_verbosity(level)
        if bars:
            hf.enable_progress_bar()
