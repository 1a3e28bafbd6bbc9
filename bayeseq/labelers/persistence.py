"""Model folders: config.json, vocab.json, model.safetensors. Reading one runs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as tensors_to_bytes
from sklearn.base import BaseEstimator

from bayeseq.data.errors import DataError
from bayeseq.kernels import Kernel, kernel_from_text
from bayeseq.kernels.marginalized import MARGINALIZED, MarginalizedKernel

FORMAT = 1
CONFIG, VOCAB, TENSORS = "config.json", "vocab.json", "model.safetensors"


@dataclass(frozen=True)
class SavedModel:
    """All that a model folder holds."""

    kind: str
    """The labeler's class name"""
    params: dict[str, Any]
    classes: tuple[str, ...]
    features: tuple[str, ...] | None
    n_features: int
    result: dict[str, Any]
    metadata: dict[str, Any]
    tensors: Mapping[str, np.ndarray]
    parts: Mapping[str, SavedModel] = field(default_factory=dict)
    """The models that this one holds, by the name of their folder inside its folder"""


def write_model(path: str | os.PathLike[str], model: SavedModel) -> None:
    """Write a model folder: under a temporary name first, then renamed, so that a crash leaves
    either the old folder or the new one. A folder that is not a model is never overwritten."""
    target = Path(path)
    target = target.resolve() if target.is_symlink() else target  # a link stays one
    require_writable(target)
    files = _files(model)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for name, content in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            with open(work / name, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        work.chmod(0o755)
        _put_in_place(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _files(model: SavedModel) -> dict[str, bytes]:
    """The files of a model folder by their paths in it, those of the models it holds included."""
    files = {
        VOCAB: _to_bytes({"n_features": model.n_features, "features": model.features}, indent=0),
        TENSORS: tensors_to_bytes({k: np.ascontiguousarray(v) for k, v in model.tensors.items()}),
    }
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    inside = {name: _files(part) for name, part in model.parts.items()}
    config = {
        "format": FORMAT,
        "bayeseq": _version(),
        "class": model.kind,
        "params": model.params,
        "classes": model.classes,
        "result": model.result,
        "metadata": _checked_metadata(model.metadata),
        "sha256": hashes,
    }
    if inside:
        config["parts"] = {
            name: hashlib.sha256(part[CONFIG]).hexdigest() for name, part in inside.items()
        }
    files[CONFIG] = _to_bytes(config, indent=2)
    for name, part in inside.items():
        files |= {f"{name}/{path}": content for path, content in part.items()}
    return files


def _put_in_place(work: Path, target: Path) -> None:
    """Rename a finished folder to its name; an older model there goes only when this worked."""
    if not target.exists():
        work.rename(target)
        return
    old = work.with_name(work.name + ".old")
    target.rename(old)
    try:
        work.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old)


def _to_bytes(value: Any, indent: int) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{error.object[error.start : error.end]!r} is no character and cannot be saved; "
            "take it out of the feature names, labels or metadata_"
        ) from error


def _checked_metadata(metadata: Any) -> Any:
    """The metadata, if JSON gives back what it was given."""
    try:
        same = json.loads(json.dumps(metadata))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"metadata_ holds something that JSON cannot: {error}") from error
    if _key_count(same) != _key_count(metadata):
        raise DataError("metadata_ has a key that is not a string; JSON cannot hold it")
    return metadata


def _key_count(value: Any) -> int:
    """How many string keys there are, at any depth."""
    if isinstance(value, dict):
        here = sum(isinstance(key, str) for key in value)
        return here + sum(map(_key_count, value.values()))
    return sum(map(_key_count, value)) if isinstance(value, list | tuple) else 0


def require_writable(target: Path) -> None:
    """Refuse a place that holds anything but a bayeseq model or an empty folder."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    try:
        config = _read_json(target / CONFIG)
    except DataError:
        config = {}
    parts = set(config["parts"]) if isinstance(config.get("parts"), dict) else set()
    is_model = {"format", "bayeseq", "class", "sha256"} <= config.keys()
    found = {path.name for path in target.iterdir()} if is_model else set()
    if is_model and found <= {CONFIG, VOCAB, TENSORS} | parts:
        for name in found & parts:
            require_writable(target / name)
    else:
        raise DataError(f"{target} exists and is not a model folder alone; choose another name")


_DEPTH = 4
"""How deep models may lie in models: a link that leads back must not be followed for ever."""


def read_model(path: str | os.PathLike[str], depth: int = 0) -> SavedModel:
    """Read a model folder, or say what is wrong with it."""
    folder = Path(path)
    if depth > _DEPTH:
        raise DataError(f"{folder} lies more than {_DEPTH} models deep; save the model again")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder that `save` wrote")
    config = _read_json(folder / CONFIG)
    try:
        if config["format"] != FORMAT:
            raise DataError(
                f"{folder / CONFIG} has format {config['format']!r}, this version reads {FORMAT}; "
                f"the model was written by bayeseq {config.get('bayeseq')}"
            )
        for name in (VOCAB, TENSORS):
            found = hashlib.sha256(_read_bytes(folder / name)).hexdigest()
            if found != config["sha256"][name]:
                raise DataError(
                    f"{folder / name} is not the file that was saved (truncated, changed, or from "
                    "another model); copy the folder again from where it was saved"
                )
        vocab = _read_json(folder / VOCAB)
        n_features = _typed(vocab["n_features"], int)
        features = None if vocab["features"] is None else _strings(vocab["features"])
        if features is not None and not len(features) == n_features == len(set(features)):
            raise TypeError("the feature names are not as many as they should be, or repeat")
        classes = _strings(config["classes"])
        if not classes or list(classes) != sorted(set(classes)):
            raise TypeError("the labels are not in order, or repeat")
        result = _typed(config["result"], dict)
        for name in ("objective", "elapsed"):
            for value in _typed(result[name], list):
                _typed(value, float)
        _typed(result.get("hyperparameters", {}), dict)
        _typed(result.get("diagnostics", {}), dict)
        return SavedModel(
            kind=_typed(config["class"], str),
            params=_typed(config["params"], dict),
            classes=classes,
            features=features,
            n_features=n_features,
            result=result,
            metadata=_typed(config["metadata"], dict),
            tensors=load_tensors(_read_bytes(folder / TENSORS)),
            parts=_read_parts(folder, _typed(config.get("parts", {}), dict), depth),
        )
    except (KeyError, TypeError, SafetensorError) as error:
        raise DataError(f"{folder} is not a bayeseq model: {error!r}") from error


def _read_parts(folder: Path, parts: dict[str, Any], depth: int) -> dict[str, SavedModel]:
    """The models inside a model's folder."""
    for name, digest in parts.items():
        if not name.isidentifier():
            raise TypeError(f"{name!r} is no name of a model inside")
        found = hashlib.sha256(_read_bytes(folder / name / CONFIG)).hexdigest()
        if found != digest:
            raise DataError(
                f"{folder / name / CONFIG} is not the file that was saved; copy the folder again "
                "from where it was saved"
            )
    return {name: read_model(folder / name, depth + 1) for name in parts}


def params_to_json(params: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments as JSON; a tuple becomes {"tuple": […]}, a kernel
    {"kernel": its text}, a marginalized kernel {"marginalized": its name, "params": …}, a labeler
    {"labeler": its class, "params": …}."""
    return {name: _to_json(name, value) for name, value in params.items()}


def params_from_json(
    params: Mapping[str, Any], known: Mapping[str, Callable[..., Any]] | None = None
) -> dict[str, Any]:
    """The inverse of `params_to_json`; `known` are the labelers that a parameter may be."""
    return {name: _from_json(value, known or {}) for name, value in params.items()}


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str | int | float):
        return value
    if isinstance(value, Kernel):
        return {"kernel": str(value)}
    if isinstance(value, MarginalizedKernel):
        names = {kind: known for known, kind in MARGINALIZED.items()}
        params = params_to_json(value.get_params(deep=False))
        return {"marginalized": names[type(value)], "params": params}
    if isinstance(value, BaseEstimator):
        params = params_to_json(value.get_params(deep=False))
        return {"labeler": type(value).__name__, "params": params}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(name, item) for item in value]}
    if isinstance(value, list):
        return [_to_json(name, item) for item in value]
    raise DataError(
        f"parameter {name} is a {type(value).__name__}, which a model file cannot hold; "
        "use a number, string, truth value, list or tuple"
    )


def _from_json(value: Any, known: Mapping[str, Callable[..., Any]]) -> Any:
    if isinstance(value, dict) and "kernel" in value:
        return kernel_from_text(_typed(value["kernel"], str))
    if isinstance(value, dict) and "marginalized" in value:
        kind = MARGINALIZED[_typed(value["marginalized"], str)]
        kernel = kind(**params_from_json(_typed(value["params"], dict)))
        kernel.check()
        return kernel
    if isinstance(value, dict) and "labeler" in value:
        return known[_typed(value["labeler"], str)](
            **params_from_json(_typed(value["params"], dict), known)
        )
    if isinstance(value, dict):
        return tuple(_from_json(item, known) for item in value["tuple"])
    if isinstance(value, list):
        return [_from_json(item, known) for item in value]
    return value


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path.parent} is not a bayeseq model: {path.name} cannot be read ({error.strerror})"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    content = _read_bytes(path)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}); copy the folder again") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}, not the settings of a model")
    return found


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected a {kind.__name__}, found {value!r:.60}")
    return value


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(_typed(value, str) for value in _typed(values, list))


def _version() -> str:
    try:
        return version("bayeseq")
    except PackageNotFoundError:
        return "unknown"
