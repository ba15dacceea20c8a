"""A hash over all that a file of tensors says, so that a damaged one is never taken for numbers."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def seal(record: str, tensors: Mapping[str, Tensor]) -> str:
    """32 hex digits over a record and the names, dtypes, shapes and bytes of dense tensors."""
    digest = hashlib.blake2b(record.encode("utf8", "surrogatepass"), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"|{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def sealed(record: str, tensors: Mapping[str, Tensor]) -> str:
    """A record with its seal before it: one entry of a file's metadata, whose order is not ours."""
    return f"{seal(record, tensors)}\n{record}"


def unsealed(entry: str, tensors: Mapping[str, Tensor]) -> str:
    """The record of such an entry. Raises ValueError where a file is not as it was written."""
    found, _, record = entry.partition("\n")
    if found != seal(record, tensors):
        raise ValueError("it was changed after it was written, or damaged")
    return record
