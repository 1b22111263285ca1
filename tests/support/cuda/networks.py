"""Whole models on an emulated card: the real runtime and plan, kernels by their sources, in a child of its own.

The driver's stand-in (`tests.support.emulated_card`) finds a kernel by the digest of its cubin, which NVRTC makes again
from the same source.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from service import runtime
from service.cache import OciLayout
from service.compiler.kernels.cuda.nvrtc import cubin
from service.core.arrays import Array
from service.core.artifact import ArtifactConfig
from service.core.digest import Digest, canonical_json
from tests.support import emulated_card
from tests.support.cuda.emulated import build

Sample = Sequence[Array]


def emulate(sources: Mapping[str, str], capability: str, folder: Path, *, checked: bool = True) -> None:
    """Puts into `folder` what the driver's stand-in runs in place of each kernel.

    Args:
        sources: of the kernels, by their symbols.
        checked: whether races in shared memory and the like end the process; slower by far.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for symbol, source in sources.items():
        link = folder / f"{hashlib.sha256(cubin(source, capability, symbol)).hexdigest()}.so"
        if not link.exists():
            link.symlink_to(build(source, symbol, capability, checked))


def run(
    config: ArtifactConfig,
    library: Path,
    constants: Path,
    kernels: Path,
    inputs: Sequence[Array],
    capability: str | None = None,
) -> list[Array]:
    """The outputs of an artifact's files for `inputs`, on a card.

    Args:
        kernels: the folder of `emulate`.
        capability: the card's, as sm_80; None for just that which the artifact is for.
    """
    described = kernels.with_name("config.json")
    described.write_bytes(canonical_json(config.to_json()))
    (outputs,) = _in_a_child(
        _run_files, (described, library, constants), kernels, capability or config.target, [inputs]
    )
    return outputs


def run_stored(store: Path, digest: Digest, target: str, kernels: Path, samples: Sequence[Sample]) -> list[list[Array]]:
    """The outputs of an artifact of the store in a folder, likewise, for each of `samples`."""
    return _in_a_child(_run_stored, (store, digest), kernels, target, samples)


def _in_a_child(
    function: Callable[..., Any], artifact: Sequence[Any], kernels: Path, target: str, samples: Sequence[Sample]
) -> list[list[Array]]:
    """`function(*artifact, folder, samples)`, arrays as files of a folder both ways."""
    folder = Path(tempfile.mkdtemp(dir=kernels.parent))
    given = [_saved(folder / f"in-{number}", sample) for number, sample in enumerate(samples)]
    environment = emulated_card.environment(_driver(), kernels, cards=_card(target))
    written = emulated_card.in_a_child(function, *artifact, str(folder), given, environment=environment)
    return [[np.load(path) for path in paths] for paths in written]


def _saved(stem: Path, values: Sample) -> list[str]:
    paths = [f"{stem}-{place}.npy" for place in range(len(values))]
    for path, value in zip(paths, values, strict=True):
        np.save(path, value)
    return paths


def _run_files(config: str, library: str, constants: str, folder: str, samples: Sequence[Sequence[str]]) -> Any:
    described = ArtifactConfig.from_json(json.loads(Path(config).read_bytes()))
    return _answers(runtime.load_files(described, Path(library), Path(constants)), folder, samples)


def _run_stored(store: str, digest: Digest, folder: str, samples: Sequence[Sequence[str]]) -> Any:
    return _answers(runtime.load(OciLayout(Path(store)), digest), folder, samples)


def _answers(model: runtime.Model, folder: str, samples: Sequence[Sequence[str]]) -> list[list[str]]:
    outputs = [model.run([np.load(path) for path in paths]) for paths in samples]
    return [_saved(Path(folder, f"out-{number}"), values) for number, values in enumerate(outputs)]


def _card(target: str) -> str:
    """`8.0` of `cuda-sm_80`, and of `sm_80`."""
    digits = target.removeprefix("cuda-").removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}"


@cache
def _driver() -> Path:
    """Compiled once in a process."""
    return emulated_card.build_driver(Path(tempfile.mkdtemp(prefix="octet-driver-")))
