"""Other libraries' messages: errors made fit to stand in a sentence of ours, log lines silenced."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


def first_line(error: Exception, *, length: int = 200) -> str:
    """The first line of an error's message without its stop; its type where it says nothing.

    A line that ends with a colon is joined by the next. What is longer than `length` ends with its
    last whole sentence, or with the last whole word and an ellipsis.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if text.endswith(":"):
        text = f"{text} {lines[1]}" if len(lines) > 1 else text[:-1]
    if len(text) <= length:
        return text.rstrip(". ")
    sentence, stop, _ = text[:length].rpartition(". ")
    return sentence.rstrip(". ") if stop else text[: length - 1].rpartition(" ")[0] + " …"


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
