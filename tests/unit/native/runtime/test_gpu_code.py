"""Tests the choice of an artifact's GPU code on emulated GPUs, and the checks of this code."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from service.compiler.lowering.link import link
from service.core.target import parse_target
from tests.support.emulated_gpus import Files, bind, load_model, refusal
from tests.support.gpu_artifact import SIMPLE, on_gpu
from tests.support.small_artifact import config_of
from tools.cuda_emulator import emulated_driver

_SEVERAL = (75, 80, 86, 90)


def _launched_code(library: str, constants: str) -> int:
    """Returns the capability of the code that runs."""
    instance = load_model(_for_several(), library, constants).instance()
    bound = bind(instance)
    instance.run()
    return int(bound[1][0, 7])


def _refused_several(library: str, constants: str) -> str:
    return refusal(library, constants, _for_several())


def _for_several() -> Any:
    return on_gpu(config_of([("input", 0), ("output", 0)], [("launch", [0, 1])]), None, *_SEVERAL)


@pytest.fixture(scope="module")
def several(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Files with code for each capability in `_SEVERAL`."""
    library = emulated_driver.build_library(tmp_path_factory.mktemp("several"), files.kernels, *_SEVERAL)
    return files._replace(library=library)


@pytest.mark.parametrize(("gpus", "code"), [("7.5", 75), ("8.0", 80), ("8.9", 86), ("6.1;8.6", 86), ("9.0", 90)])
def test_a_gpu_runs_the_best_code_for_it(gpus: str, code: int, several: Files) -> None:
    assert several.run(_launched_code, cards=gpus) == code


def test_the_capabilities_of_the_artifact_are_reported(several: Files) -> None:
    error = several.run(_refused_several, cards="6.1")
    words = "built for compute capability 7.5 or 8.0 or 8.6 or 9.0, which no GPU here supports: GPU 0 (Emulated 6.1)"
    assert words in error
    assert error.startswith("Unsupported: ")


def test_code_that_the_driver_rejects_is_unsupported(files: Files, tmp_path: Path) -> None:
    library = emulated_driver.build_library(tmp_path / "library", tmp_path / "kernels", 86)
    error = files._replace(library=library).run(refusal, cards="8.0")
    assert "(Emulated 8.0, compute capability 8.0) with a driver for CUDA 12.9 rejects octet_add" in error
    assert error.startswith("Unsupported: ")
    assert error.endswith("CUDA_ERROR_NO_BINARY_FOR_GPU")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requires": []}, "a plan for a GPU must have launches and require a capability"),
        ({"requires": ["sm_80", "sm_80"]}, 'requires "sm_80", which this release does not know'),
        ({"requires": ["sm_80", "sm_86"]}, "call 0 uses the kernel octet_add.sm_80, for which the library has no code"),
        ({"requires": ["sm_90a"]}, 'requires "sm_90a", which this release does not know'),
        ({"requires": ["sm_"]}, 'requires "sm_"'),
        ({"requires": ["no_such_feature", "sm_80"]}, "this CPU lacks no_such_feature"),
    ],
)
def test_a_config_must_match_the_code_of_the_library(change: Any, words: str, files: Files) -> None:
    assert words in files.run(refusal, SIMPLE | change)


def test_a_cpu_function_is_not_gpu_code(files: Files, code: Path) -> None:
    config = deepcopy(SIMPLE)
    config["plan"]["calls"] = [["add", [0, 1, 2]], ["twice", [2, 3]]]
    error = files._replace(library=code).run(refusal, config)
    assert error == "CorruptBlob: call 0 uses the kernel add, for which the library has no code"


@pytest.mark.parametrize("damage", ["cut off", "no ELF", "section", "table"])
def test_gpu_code_must_be_complete(damage: str, files: Files, tmp_path: Path) -> None:
    image = bytearray(emulated_driver.cubin({"octet_twice": 2}))
    if damage == "cut off":
        del image[-1]
    elif damage == "no ELF":
        image[0] = 0
    elif damage == "section":  # size of the last section
        image[-32:-24] = (1 << 40).to_bytes(8, "little")
    else:  # offset of the section table
        image[40:48] = (1 << 63).to_bytes(8, "little")
    config = on_gpu(config_of([("input", 0), ("output", 0)], [("twice", [0, 1])]))
    library = _linked("octet_twice", bytes(image), tmp_path)
    error = files._replace(library=library).run(refusal, config)
    assert error == "CorruptBlob: the library's octet_twice is not GPU code, or is truncated"


def test_code_without_the_kernel_is_refused(files: Files, tmp_path: Path) -> None:
    image = emulated_driver.cubin({"octet_other": 2})
    emulated_driver.emulate(emulated_driver.KERNELS, ["octet_twice"], image, files.kernels)
    config = on_gpu(config_of([("input", 0), ("output", 0)], [("twice", [0, 1])]))
    error = files._replace(library=_linked("octet_twice", image, tmp_path)).run(refusal, config)
    assert error == "CorruptBlob: the code of octet_twice has no kernel of that name"


def test_a_kernel_with_more_parameters_reads_no_further(files: Files, tmp_path: Path) -> None:
    image = emulated_driver.cubin({"octet_twice": 3})
    emulated_driver.emulate(emulated_driver.KERNELS, ["octet_twice"], image, files.kernels)
    config = on_gpu(config_of([("input", 0), ("output", 0)], [("twice", [0, 1])]))
    error = files._replace(library=_linked("octet_twice", image, tmp_path)).run(refusal, config)
    assert "octet_twice: CUDA_ERROR_INVALID_VALUE" in error


def _linked(symbol: str, image: bytes, folder: Path) -> Path:
    path = emulated_driver.device_object(symbol, image, folder / "kernel.o")
    link([path], folder / "library.so", parse_target("cuda-sm_80"), trusted=True)
    return folder / "library.so"
