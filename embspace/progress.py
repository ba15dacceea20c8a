"""How long work says how far it is."""

from collections.abc import Callable
from typing import TypeAlias

# Called with what is being done, how much of it is done, and how much there is in all.
Progress: TypeAlias = Callable[[str, int, int], None]
