"""Tests of a model with parallel loops: its outputs are the same with any number of threads, and while another model
runs.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from service import runtime
from service.core.models.arrays import Array
from service.core.system.cores import Core, usable_cores
from service.core.verification.vectors import sample_inputs
from service.runtime.octet_library import NativeTeam
from service.runtime.threads import Threads
from tests.support.compiling import compiled
from tests.support.tflite_builder import Quant
from tests.support.tflite_models import conv2d_model
from tests.support.waiting import WORK_TIMEOUT_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def model(folder: Path) -> runtime.Model:
    """A 3x3 convolution with 25 million multiplications, which is enough for several threads."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (70, 3, 3, 70), np.int8)
    bias = rng.integers(-1000, 1000, 70, np.int32)
    source = folder / "model.tflite"
    source.write_bytes(conv2d_model((1, 25, 23, 70), weights, bias, Quant(0.1, 3), Quant(0.02), Quant(0.9, -5)))
    return compiled(source, "litert-reference", folder)


@pytest.fixture(scope="module")
def questions(model: runtime.Model) -> Sequence[Sequence[Array]]:
    return sample_inputs(model.signature, 4)


def crowded(cores: int) -> NativeTeam:
    """Returns a team that treats this machine's processors as `cores` cores."""
    processors = sorted(Core().union(*usable_cores()))
    return NativeTeam.of([(processors[number % len(processors)], number, 0) for number in range(cores)])


def with_threads(model: runtime.Model, threads: Threads) -> runtime.Model:
    return runtime.Model(model.config, model.native, threads=threads)


@pytest.mark.skipif("x86_64" not in platform.machine(), reason="no kernels for this machine")
def test_its_loop_is_parallel(model: runtime.Model, folder: Path, questions: Sequence[Sequence[Array]]) -> None:
    """If the loop were not parallel, the tests below would check nothing. Counts the library's calls of the runtime."""
    (path,) = folder.glob("scratch/link/*.so")
    library = ctypes.CDLL(str(path))  # the library that the model has mapped
    launched: list[int] = []
    launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    pointer = ctypes.c_void_p.in_dll(library, "__TVMBackendParallelLaunch")
    launch_of_runtime = launch(pointer.value or 0)

    def noted(function: int, data: int, tasks: int) -> int:
        launched.append(tasks)
        return int(launch_of_runtime(function, data, tasks))

    replaced, spy = pointer.value, launch(noted)
    pointer.value = ctypes.cast(spy, ctypes.c_void_p).value
    try:
        model.run(questions[0])
    finally:
        pointer.value = replaced
    assert launched


@pytest.mark.parametrize("threads", [2, 3, 4, 7])
def test_outputs_do_not_depend_on_the_number_of_threads(
    model: runtime.Model, questions: Sequence[Sequence[Array]], threads: int
) -> None:
    def answers(of: Threads) -> list[Array]:
        instance = with_threads(model, of)
        return [instance.run(question)[0] for question in questions]

    of = crowded(threads)
    with ThreadPoolExecutor(1) as pool:
        many = pool.submit(answers, Threads(threads, of)).result()
        alone = pool.submit(answers, Threads(1, of)).result()
        again = pool.submit(answers, Threads(threads, of)).result()
    assert len({answer.tobytes() for answer in alone}) > 1
    np.testing.assert_array_equal(many, alone)
    np.testing.assert_array_equal(again, alone)


@pytest.mark.parametrize("threads", [(2, 2), (1, 2), (1, 1, 1)])
def test_models_that_run_concurrently_give_the_right_outputs(
    model: runtime.Model, questions: Sequence[Sequence[Array]], threads: tuple[int, ...]
) -> None:
    of, calls = crowded(2), 40
    right = [model.run(question)[0] for question in questions]
    together = threading.Barrier(len(threads))

    def ask(count: int) -> None:
        instance = with_threads(model, Threads(count, of))
        together.wait(timeout=WORK_TIMEOUT_S)
        for call in range(calls):
            position = call % len(questions)
            np.testing.assert_array_equal(instance.run(questions[position])[0], right[position])

    with ThreadPoolExecutor(len(threads)) as pool:
        list(pool.map(ask, threads))
    assert of.free_cores == 2


def test_a_clone_has_the_same_number_of_threads(model: runtime.Model, tmp_path: Path) -> None:
    assert model.threads.count == Threads().count
    assert model.clone().threads is model.threads
