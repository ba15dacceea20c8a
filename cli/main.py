"""The entry point: as little as can be before the first `try`."""

import sys


def main() -> None:
    """Run the command line; an interrupt ends with 130, also while it is still being imported."""
    try:
        from .group import start

        start()
    except KeyboardInterrupt:
        sys.exit(130)


def __getattr__(name: str) -> object:
    """`cli` and `COMMANDS`, imported when they are asked for."""
    if name not in ("cli", "COMMANDS"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import group

    return getattr(group, name)
