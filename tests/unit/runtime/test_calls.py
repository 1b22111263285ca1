"""Tests of calls with NumPy arrays: which arrays are accepted, who owns the outputs, and that no memory leaks."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.artifacts.artifact import ArtifactConfig
from service.core.artifacts.buffers import aligned_empty, is_aligned
from service.core.artifacts.call_plan import CallPlan
from service.core.artifacts.sequence import SequenceState
from service.core.digest import canonical_json
from service.core.errors import InvalidTensor, OctetError
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.runtime import Model
from service.runtime.octet_library import NativeModel
from tests.support.small_artifact import COUNTING, FUNCTIONS, LENGTH, SIMPLE, compiled, config_of, tensor
from tests.support.waiting import eventually

_ROUNDS = 10
_TWICE = config_of([("input", 0), ("output", 0)], [("twice", [0, 1])])
_FAILING = config_of([("input", 0), ("output", 0)], [("unless_3", [0, 1])])  # fails if the values are not 3
_CALLS = 100_000
_MODELS = 10_000
_MOST_KEPT_BYTES = 2_000_000  # a leak of one object a call is at least three times as much
_LOOK = """
int32_t wait(void* const* o) {
  volatile int32_t* go = o[0];
  go[1] = 1; /* it has begun */
  while (!*go);
  return twice((void* const*)o + 1);
}
int32_t unless_3(void* const* o) { return ((int32_t*)o[0])[0] == 3 ? 3 : twice(o); }
int32_t where(void* const* o) { ((void**)o[1])[0] = o[0]; return 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(FUNCTIONS + _LOOK, folder=tmp_path_factory.mktemp("code"))


@pytest.fixture
def load(library: Path, tmp_path: Path) -> Callable[..., Model]:
    def loaded(config: dict[str, Any], constants: bytes = bytes(128)) -> Model:
        (tmp_path / "constants").write_bytes(constants)
        native = NativeModel.load_files(canonical_json(config), library, tmp_path / "constants")
        signature = ModelSignature.from_json(config["signature"])
        return Model(ArtifactConfig(signature, "x86-64-v3", "xnnpack", CallPlan(0, (), ())), native)

    return loaded


def unaligned(values: Any, dtype: Any = np.int32) -> Array:
    """Returns an array `[1, LENGTH]` that begins 16 bytes after an aligned address, as NumPy's memory may."""
    memory = aligned_empty((1, LENGTH + 4), dtype)
    array = memory.reshape(-1)[4:].reshape(1, LENGTH)
    array[...] = values
    assert not is_aligned(array)
    return array


def read_only(values: Any) -> Array:
    array = tensor(values)
    array.flags.writeable = False
    return array


def where_it_read(model: Model, array: Array) -> int:
    """Returns the address that compiled code received for the array."""
    return int(model(array).view(np.int64)[0, 0])


@pytest.mark.parametrize(
    "array",
    [
        tensor(3),
        unaligned(3),
        read_only(3),
        np.asfortranarray(tensor(3)),
        tensor(3).astype(np.dtype("i4", metadata={"a": 1})),
        np.repeat(tensor(3), 2, axis=1)[:, ::2],
        np.full((LENGTH, 1), 3, np.int32).T,
        np.ma.masked_array(tensor(3)),
    ],
    ids=["aligned", "unaligned", "read-only", "fortran", "metadata", "strided", "transposed", "masked"],
)
def test_an_array_with_the_right_values_is_accepted(load: Callable[..., Model], array: Any) -> None:
    got = load(_TWICE)(array)
    assert got.tolist() == [[6] * LENGTH]
    assert (got.dtype, got.shape, type(got)) == (np.int32, (1, LENGTH), np.ndarray)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (tensor().astype(np.int64), "is int64, but the model takes INT32"),
        (tensor().astype(">i4"), "is >i4, but the model takes INT32"),
        (tensor().reshape(-1), r"has shape \[16\], but the model takes \[1, 16\]"),
        (tensor().reshape(LENGTH, 1), r"has shape \[16, 1\]"),
        (tensor().reshape(1, 4, 4), r"has shape \[1, 4, 4\]"),
        (tensor()[:, :8], r"has shape \[1, 8\]"),
        (None, "is object"),
    ],
)
def test_an_array_that_does_not_fit_is_rejected_with_a_reason(
    load: Callable[..., Model], array: Any, words: str
) -> None:
    with pytest.raises(InvalidTensor, match=words):
        load(_TWICE)(array)


def test_all_inputs_are_passed(load: Callable[..., Model]) -> None:
    model = load(_TWICE)
    for inputs in ((), (tensor(), tensor())):
        with pytest.raises(InvalidTensor, match=f"takes 1 inputs, not {len(inputs)}"):
            model(*inputs)


def test_inputs_and_outputs_are_in_order(load: Callable[..., Model]) -> None:
    buffers = [("input", 0), ("input", 1), ("output", 0), ("output", 1)]
    model = load(config_of(buffers, [("twice", [0, 3]), ("add", [0, 1, 2])], inputs=2, outputs=2))
    total, doubled = model(tensor(1), unaligned(10))
    assert (total[0, 0], doubled[0, 0]) == (11, 2)
    total, doubled = model(unaligned(5), tensor(10))
    assert (total[0, 0], doubled[0, 0]) == (15, 10)


def test_an_aligned_array_is_not_copied(load: Callable[..., Model]) -> None:
    model = load(config_of([("input", 0), ("output", 0)], [("where", [0, 1])]))
    aligned, copied = tensor(), unaligned(0)
    assert where_it_read(model, aligned) == aligned.ctypes.data
    assert where_it_read(model, copied) == where_it_read(model, read_only(0)) != copied.ctypes.data


def test_outputs_are_new_aligned_and_writeable(load: Callable[..., Model]) -> None:
    model, given = load(_TWICE), tensor(1)
    first, second = model(given), model(given)
    assert is_aligned(first)
    assert first.flags.writeable
    assert not np.shares_memory(first, second)
    first[...] = 7
    assert second.tolist() == [[2] * LENGTH]


def test_outputs_outlive_their_model(load: Callable[..., Model]) -> None:
    model = load(_TWICE)
    view = model(tensor(4))[0, 3:5]
    del model
    gc.collect()
    assert view.tolist() == [8, 8]


def test_a_call_keeps_no_reference_to_its_inputs(load: Callable[..., Model]) -> None:
    models = [load(_TWICE), load(_FAILING)]
    arrays = [tensor(3), unaligned(3), tensor(3)[:, :8], tensor(3).astype(np.int64)]
    memory = type(models[0](arrays[0]).base)
    held = [*arrays, models[0].signature.outputs[0].dtype, arrays[0].dtype, np.ndarray, memory, "dtype"]
    before = [sys.getrefcount(each) for each in held]
    for _ in range(_ROUNDS):
        for model, given in product(models, range(len(arrays))):
            with suppress(OctetError):
                model(arrays[given])
    changes = [sys.getrefcount(each) - count for each, count in zip(held, before, strict=True)]
    # other threads of the test process refer to some of the objects now and then
    assert max(map(abs, changes)) < _ROUNDS


@pytest.mark.parametrize("array", [tensor(3), unaligned(3)], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("config", [_TWICE, _FAILING], ids=["succeeds", "fails"])
def test_calls_leak_no_memory(load: Callable[..., Model], config: Any, array: Array) -> None:
    model = load(config)

    def call(count: int) -> None:
        for _ in range(count):
            with suppress(OctetError):
                model(array)

    call(1000)
    before = _resident_bytes()
    call(_CALLS)
    assert _resident_bytes() - before < _MOST_KEPT_BYTES


def test_models_leak_no_memory(load: Callable[..., Model]) -> None:
    model, array = load(_TWICE), unaligned(1)
    for _ in range(200):
        model.clone()(array)
    gc.collect()
    before = _resident_bytes()
    for _ in range(_MODELS):
        model.clone()(array)
    gc.collect()
    assert _resident_bytes() - before < 50 * _MODELS


def test_a_call_that_fails_raises_and_the_next_one_works(load: Callable[..., Model]) -> None:
    model = load(_FAILING)
    with pytest.raises(OctetError, match=r"call 0 \(unless_3\) failed with code 3"):
        model(tensor(3))
    assert model(tensor(4))[0, 0] == 8


def test_calls_of_a_sequence_advance_its_state(load: Callable[..., Model]) -> None:
    model = load(COUNTING)
    state = SequenceState(model.signature)
    assert [int(model.run([unaligned(2)], state)[0][0, 0]) for _ in range(3)] == [2, 4, 6]
    with pytest.raises(InvalidTensor):
        model.run([tensor()[:, :8]], state)
    assert model.run([tensor(1)], state)[0][0, 0] == 7
    assert model(tensor(5))[0, 0] == 5


def test_one_model_serves_one_call_at_a_time(load: Callable[..., Model]) -> None:
    """During the call, another thread runs Python."""
    buffers = [("input", 0), ("input", 1), ("output", 0)]
    model = load(config_of(buffers, [("wait", [0, 1, 2])], inputs=2))
    go = tensor(0)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(model, go, unaligned(1))
        try:
            eventually(lambda: go[0, 1] == 1)
            with pytest.raises(InvalidTensor, match="the instance is used by another thread"):
                model(tensor(1), unaligned(2))
        finally:
            go[...] = 1
    assert answer.result()[0, 0] == 2
    assert model(go, unaligned(3))[0, 0] == 6


def test_clones_run_concurrently(load: Callable[..., Model]) -> None:
    model, threads, calls = load(SIMPLE, np.arange(2 * LENGTH, dtype=np.int32).tobytes()), 4, 2000
    together = threading.Barrier(threads)

    def ask(number: int) -> None:
        clone = model.clone()
        together.wait(timeout=60)
        for call in range(calls):
            given = number * calls + call
            got = clone(unaligned(given) if call % 2 else tensor(given))
            assert got[0].tolist() == [2 * (given + LENGTH + each) for each in range(LENGTH)]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(ask, range(threads)))


def test_a_closed_model_raises(load: Callable[..., Model]) -> None:
    model = load(_TWICE)
    model.instance.close()
    with pytest.raises(InvalidTensor, match="the instance was closed"):
        model(tensor())


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096
