"""Runs whole models on an emulated GPU in a child process, with the real runtime and call plan.

A replacement for NVIDIA's driver (`tools.cuda_emulator.emulated_driver`) finds the emulation of a kernel by the
digest of its cubin. NVRTC compiles the same source to the same cubin.
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
from service.core.artifacts.artifact import ArtifactConfig
from service.core.digest import Digest, canonical_json
from service.core.models.arrays import Array
from tools.cuda_emulator import emulated_driver
from tools.cuda_emulator.emulated_kernel import build

Sample = Sequence[Array]


def emulate(sources: Mapping[str, str], capability: str, folder: Path, *, checked: bool = True) -> None:
    """For each kernel, builds in `folder` the code that the driver's replacement runs.

    Args:
        sources: symbol -> source of the kernel.
        checked: true to check for races and other faults, which end the process. Such checks make it much slower.
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
    """Returns the outputs of an artifact's files for `inputs` on a GPU.

    Args:
        kernels: the folder that `emulate` has filled.
        capability: the capability of the GPU, such as sm_80; None for that of the artifact.
    """
    described = kernels.with_name("config.json")
    described.write_bytes(canonical_json(config.to_json()))
    (outputs,) = _in_a_child(
        _run_files, (described, library, constants), kernels, capability or config.target, [inputs]
    )
    return outputs


def run_stored(store: Path, digest: Digest, target: str, kernels: Path, samples: Sequence[Sample]) -> list[list[Array]]:
    """Returns the outputs of a stored artifact for each of `samples`, in the same way as `run`."""
    return _in_a_child(_run_stored, (store, digest), kernels, target, samples)


def _in_a_child(
    function: Callable[..., Any], artifact: Sequence[Any], kernels: Path, target: str, samples: Sequence[Sample]
) -> list[list[Array]]:
    """Calls `function(*artifact, folder, samples)` in a child process. Arrays are passed as files in a folder."""
    folder = Path(tempfile.mkdtemp(dir=kernels.parent))
    given = [_saved(folder / f"in-{number}", sample) for number, sample in enumerate(samples)]
    environment = emulated_driver.environment(_driver(), kernels, cards=_card(target))
    written = emulated_driver.in_a_child(function, *artifact, str(folder), given, environment=environment)
    return [[np.load(path) for path in paths] for paths in written]


def _saved(stem: Path, values: Sample) -> list[str]:
    paths = [f"{stem}-{index}.npy" for index in range(len(values))]
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
    """Converts `cuda-sm_80` or `sm_80` to `8.0`."""
    digits = target.removeprefix("cuda-").removeprefix("sm_")
    return f"{digits[:-1]}.{digits[-1]}"


@cache
def _driver() -> Path:
    """Builds the driver's replacement, once per process, and returns its folder."""
    return emulated_driver.build_driver(Path(tempfile.mkdtemp(prefix="octet-driver-")))
