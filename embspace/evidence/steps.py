"""A step of a reproduction: one measurement, its settings, and a key of all that decides it."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..progress import Progress
from ..results import Result
from ..version import __version__

FORMAT = 2  # of what a step leaves behind; a new number makes old ones be measured again


@dataclass(frozen=True)
class Step:
    """One measurement of a paper, as it applies to the models at hand.

    name: of its folder; place: section and figure of the paper; work: does it; decided_by: model
    and text hashes and settings; why_not: why it does not apply, else "".
    """

    name: str
    title: str
    place: str
    work: Callable[[Progress | None], Result] | None = None
    decided_by: dict[str, Any] = field(default_factory=dict)
    why_not: str = ""

    @property
    def key(self) -> str:
        """16 hex digits: equal keys mean equal results."""
        said = {"name": self.name, "version": __version__, "format": FORMAT, **self.decided_by}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
