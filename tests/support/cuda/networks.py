"""Whole models on an emulated card: the real runtime and plan, kernels by their sources, in a child of its own.

The driver's stand-in (`tests.support.emulated_card`) finds a kernel by the digest of its cubin, which NVRTC makes again
from the same source.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.objects import program_of
from service.core.artifact import ArtifactConfig
from service.core.digest import canonical_json
from tests.support import emulated_card
from tests.support.cuda.emulated import build
from tests.support.cuda.machine_code import compile_for

Array = NDArray[Any]


def emulate(kernels: Mapping[str, Kernel], capability: str, folder: Path, *, checked: bool = True) -> None:
    """Puts into `folder` what the driver's stand-in runs in place of each kernel.

    Args:
        checked: whether races in shared memory and the like end the process; slower by far.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for symbol, kernel in kernels.items():
        image = compile_for(capability, kernel)
        built = build(program_of(kernel), symbol, capability, checked)
        link = folder / f"{hashlib.sha256(image).hexdigest()}.so"
        if not link.exists():
            link.symlink_to(built)


def run(config: ArtifactConfig, library: Path, constants: Path, kernels: Path, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of an artifact's files for `inputs`, on a card of just the capability that it is for.

    Args:
        kernels: the folder of `emulate`.
    """
    folder = Path(tempfile.mkdtemp(dir=kernels.parent))
    described = folder / "config.json"
    described.write_bytes(canonical_json(config.to_json()))
    given = [folder / f"input-{place}.npy" for place in range(len(inputs))]
    for path, values in zip(given, inputs, strict=True):
        np.save(path, values)
    environment = emulated_card.environment(_driver(), kernels, cards=_card(config.target))
    files = (described, library, constants)
    written = emulated_card.in_a_child(
        _run, *files, str(folder), [str(path) for path in given], environment=environment
    )
    return [np.load(path) for path in written]


def _run(config: str, library: str, constants: str, folder: str, inputs: Sequence[str]) -> list[str]:
    from service.runtime import load_files

    described = ArtifactConfig.from_json(json.loads(Path(config).read_bytes()))
    outputs = load_files(described, Path(library), Path(constants)).run([np.load(path) for path in inputs])
    paths = [f"{folder}/output-{place}.npy" for place in range(len(outputs))]
    for path, values in zip(paths, outputs, strict=True):
        np.save(path, values)
    return paths


def _card(target: str) -> str:
    """`8.0` of `cuda-sm_80`."""
    digits = target.removeprefix("cuda-sm_")
    return f"{digits[:-1]}.{digits[-1]}"


@cache
def _driver() -> Path:
    """Compiled once in a process."""
    return emulated_card.build_driver(Path(tempfile.mkdtemp(prefix="octet-driver-")))
