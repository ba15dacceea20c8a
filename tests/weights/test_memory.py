"""Free memory is what the machine and its container leave; what does not fit is refused."""

import pytest
import torch

from embspace import memory
from embspace.errors import ResourceError

CPU = torch.device("cpu")


def test_what_fits_is_let_through_and_what_does_not_is_refused(monkeypatch):
    needed = memory.Needs(private=1000, mapped=10**12, seconds=1)
    monkeypatch.setattr(memory, "free_memory", lambda device=None: 1000)
    needed.require(CPU, way_out="do less.")
    monkeypatch.setattr(memory, "free_memory", lambda device=None: 999)
    with pytest.raises(ResourceError, match="do less"):
        needed.require(CPU, way_out="do less.")


def test_a_containers_limit_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    free = memory.free_memory(CPU)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    assert memory.free_memory(CPU) == 1000 < free
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory(CPU) > 1000


@pytest.mark.parametrize(
    ("n", "text"), [(1, "1 MB"), (340e6, "340 MB"), (1.24e9, "1.2 GB"), (5e11, "500.0 GB")]
)
def test_bytes_are_readable(n, text):
    assert memory.gigabytes(n) == text
