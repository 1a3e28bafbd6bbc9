"""The state of a long run on disk, so that a run that was killed goes on where it was.

A folder holds one file of tensors and `checkpoint.json`, which names it with its SHA-256. A new
state is written beside the old one, and `checkpoint.json` is replaced in one step when all of it
is there: whenever the process dies, one of the two is whole. Nothing in the folder is executed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as tensors_to_bytes

INDEX = "checkpoint.json"
FORMAT = 2


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def fingerprint(*things: Any) -> str:
    """A hash of numbers, texts, arrays and records of them: equal for equal content.

    >>> fingerprint(1, np.zeros(2)) == fingerprint(1, torch.zeros(2, dtype=torch.float64))
    True
    >>> fingerprint(1, np.zeros(2)) == fingerprint(1, np.zeros(3))
    False
    """
    digest = hashlib.sha256()
    _feed(digest, things)
    return digest.hexdigest()


def _feed(digest: Any, thing: Any) -> None:
    if isinstance(thing, torch.Tensor):
        thing = thing.numpy()
    if thing is None or isinstance(thing, bool | int | float | str):
        digest.update(f"{type(thing).__name__}:{thing!r};".encode())
    elif isinstance(thing, np.ndarray):
        digest.update(f"array:{thing.dtype}{thing.shape};".encode())
        digest.update(np.ascontiguousarray(thing).tobytes())
    elif sp.issparse(thing):
        _feed(digest, [*thing.shape, thing.data, thing.indices, thing.indptr])
    elif isinstance(thing, list | tuple):
        digest.update(f"list:{len(thing)};".encode())
        for item in thing:
            _feed(digest, item)
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            digest.update(f"{field.name}=".encode())
            _feed(digest, getattr(thing, field.name))
    elif hasattr(thing, "matrix"):  # a design
        _feed(digest, thing.matrix)
    else:
        digest.update(f"{type(thing).__qualname__};".encode())
        for name in sorted(getattr(thing, "__dict__", {})):
            digest.update(f"{name}=".encode())
            _feed(digest, vars(thing)[name])


def write_checkpoint(
    folder: Path, key: str, numbers: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> None:
    """Write a state: what JSON can hold, and arrays; `key` says what run it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    content = tensors_to_bytes({k: np.ascontiguousarray(v) for k, v in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    name = f"state-{digest[:16]}.safetensors"
    _write(folder / name, content)
    index = {"format": FORMAT, "key": key, "tensors": name, "sha256": digest, **numbers}
    _write(folder / INDEX, json.dumps(index, indent=1).encode())
    for old in folder.glob("state-*.safetensors*"):
        if old.name != name:
            old.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    work = path.with_name(path.name + ".tmp")
    with open(work, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(work, path)


def read_checkpoint(folder: Path, key: str) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """The state in a folder, or None where there is none yet; refused if it is damaged or belongs
    to another run."""
    if not (folder / INDEX).exists():
        if folder.exists() and any(p for p in folder.iterdir() if not _ours(p.name)):
            raise CheckpointError(
                f"{folder} holds something that is not a checkpoint; choose another folder"
            )
        return None
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if index["format"] != FORMAT or not isinstance(index["tensors"], str):
            raise TypeError(f"its format is {index['format']!r}")
        if index["key"] != key:
            raise CheckpointError(
                f"the checkpoint in {folder} belongs to a run with other data or settings; give "
                "the same ones to go on with it, or another folder to start afresh"
            )
        if Path(index["tensors"]).name != index["tensors"] or not _ours(index["tensors"]):
            raise TypeError(f"it names the file {index['tensors']!r}")
        content = (folder / index["tensors"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != index["sha256"]:
            raise TypeError(f"{index['tensors']} is not the file that was written")
        return index, load_tensors(content)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"the checkpoint in {folder} is damaged ({error}); delete the folder to start afresh"
        ) from error


def _ours(name: str) -> bool:
    state = name.startswith("state-") and ".safetensors" in name
    return state or name in (INDEX, f"{INDEX}.tmp")
