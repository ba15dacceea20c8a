"""Other libraries' errors, made fit to stand inside a sentence of ours."""


def first_line(error: Exception, *, length: int = 200) -> str:
    """The first line of an error's message, cut to a length; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:length].rstrip(". ")
