"""How a model's forward passes are run: said once, of the model."""

from dataclasses import dataclass
from typing import Any

import torch

from ..checking import one_of, positive

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class RunSettings:
    """How a model's forward passes are run.

    Args:
        dtype: Of the pass: float32, float64, bfloat16 or float16.
        batch_tokens: Tokens of one batch, padding included.
        device_map: "auto" spreads the blocks over devices (needs accelerate).

    Raises:
        EmbspaceError: For another dtype, or a batch without tokens.

    Example:
        >>> RunSettings(dtype="bfloat16", batch_tokens=1024).record
        {'run_dtype': 'bfloat16', 'batch_tokens': 1024}
    """

    dtype: str = "float32"
    batch_tokens: int = 4096
    device_map: str | None = None

    def __post_init__(self) -> None:
        one_of(self.dtype, DTYPES, "dtype of the run")
        positive(self.batch_tokens, "batch_tokens")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype as torch has it."""
        return DTYPES[self.dtype]

    @property
    def record(self) -> dict[str, Any]:
        """What a result says of its run; 16-bit results depend on the batch."""
        return {"run_dtype": self.dtype, "batch_tokens": self.batch_tokens}


AS_USUAL = RunSettings()
