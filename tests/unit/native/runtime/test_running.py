"""Tests the results of an instance and the memory that it uses."""

from __future__ import annotations

import base64
import ctypes
import threading
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.digest import canonical_json
from service.core.errors import InvalidTensor, OctetError
from service.runtime.octet_library import NativeInstance, NativeModel, NativeTeam
from tests.support.small_artifact import (
    BYTES,
    COUNTING,
    FUNCTIONS,
    LENGTH,
    SIMPLE,
    address,
    changed,
    compiled,
    config_of,
    tensor,
)

_STRAIGHT = [("input", 0), ("output", 0)]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").touch()
    return tmp_path / "empty"


def _instance(config: Any, code: Path, constants: Path) -> NativeInstance:
    return NativeModel.load_files(canonical_json(config), code, constants).instance()


def test_a_run_reads_the_bound_inputs(code: Path, constants: Path) -> None:
    instance = _instance(SIMPLE, code, constants)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    instance.run()
    first = got.copy()
    given += 1
    instance.run()
    assert (got - first).tolist() == [[2] * LENGTH]


def test_binding_again_redirects_the_next_run(code: Path, empty: Path) -> None:
    instance = _instance(config_of(_STRAIGHT, [("twice", [0, 1])]), code, empty)
    one, two, first, second = tensor(1), tensor(2), tensor(), tensor()
    instance.bind([address(one)], [address(first)])
    instance.run()
    instance.bind([address(two)], [address(second)])
    instance.run()
    assert (first[0, 0], second[0, 0]) == (2, 4)


def test_calls_read_the_length_that_was_set(code: Path, constants: Path) -> None:
    buffers = [["length", 0, 4], ["output", 0, BYTES]]
    config = changed(SIMPLE, buffers=buffers, calls=[["lengths", [0, 1]]], longest=8, copies=[])
    model = NativeModel.load_files(canonical_json(config), code, constants)
    instance, got = model.instance(), tensor()
    assert model.longest == 8
    instance.bind([address(tensor())], [address(got)])
    instance.run()
    assert got[0, 0] == 8  # the longest, before another length is set
    instance.set_length(3)
    instance.run()
    assert got.tolist() == [[3] * LENGTH]
    for length in (0, -1, 9):
        with pytest.raises(InvalidTensor, match="the length must be from 1 to 8"):
            instance.set_length(length)


def test_a_model_of_one_length_takes_no_other(code: Path, constants: Path) -> None:
    model = NativeModel.load_files(canonical_json(SIMPLE), code, constants)
    assert model.longest == 0
    with pytest.raises(InvalidTensor, match="the model has inputs of one length only"):
        model.instance().set_length(1)


def test_nothing_runs_unbound(code: Path, constants: Path) -> None:
    with pytest.raises(InvalidTensor, match="nothing is bound to the instance"):
        _instance(SIMPLE, code, constants).run()


def test_a_tensor_has_to_be_aligned(code: Path, constants: Path) -> None:
    instance = _instance(SIMPLE, code, constants)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    with pytest.raises(InvalidTensor, match=r"output 0 \(out0\) is not aligned to 64 bytes"):
        instance.bind([address(tensor())], [address(got) + 4])
    with pytest.raises(InvalidTensor, match=r"input 0 \(in0\) is NULL"):
        instance.bind([0], [address(got)])
    instance.run()  # uses the pointers that were bound before
    assert got[0, 0] == 2 * (1 + LENGTH)


def test_an_error_is_one_line(code: Path, constants: Path) -> None:
    config = deepcopy(SIMPLE)
    config["signature"]["inputs"][0]["name"] = "a\n\x1b[2Jb"
    with pytest.raises(InvalidTensor, match=r"input 0 \(a\?\?\[2Jb\) is NULL"):
        _instance(config, code, constants).bind([0], [0])


def test_a_call_that_fails_is_named(code: Path, empty: Path) -> None:
    instance = _instance(config_of(_STRAIGHT, [("twice", [0, 1]), ("broken", [0, 1])]), code, empty)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    for run in (instance.run, instance.run_timed):
        with pytest.raises(OctetError, match=r"call 1 \(broken\) failed with code 7"):
            run()


def test_timed_runs_report_the_time_of_each_call(code: Path, constants: Path) -> None:
    instance = _instance(SIMPLE, code, constants)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    seconds = instance.run_timed()
    assert len(seconds) == 2
    assert all(0 <= each < 1 for each in seconds)
    assert got[0, 0] == 2 * (1 + LENGTH)


def test_outputs_that_no_call_writes_are_copied(code: Path, constants: Path) -> None:
    buffers = [("input", 0), ("constant", 64), ("output", 0), ("output", 1), ("output", 2), ("output", 3)]
    config = config_of(buffers, [("twice", [0, 2])], copies=[(0, 3), (1, 4), (2, 5)], outputs=4)
    instance = _instance(config, code, constants)
    given, got = tensor(np.arange(LENGTH)), [tensor() for _ in range(4)]
    instance.bind([address(given)], [address(each) for each in got])
    instance.run()
    counted = np.arange(LENGTH)
    assert [each[0].tolist() for each in got] == [
        (n * counted + m).tolist() for n, m in ((2, 0), (1, 0), (1, 16), (2, 0))
    ]


def test_an_instance_keeps_the_state_of_a_sequence(code: Path, empty: Path) -> None:
    instance = _instance(COUNTING, code, empty)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    seen = []
    for _ in range(3):
        instance.run()
        seen.append(int(got[0, 5]))
    instance.reset()
    instance.run()
    assert [*seen, int(got[0, 5])] == [1, 2, 3, 1]


def test_instances_keep_sequences_of_their_own(code: Path, empty: Path) -> None:
    model = NativeModel.load_files(canonical_json(COUNTING), code, empty)
    given, got = tensor(1), [tensor(), tensor()]
    instances = [model.instance(), model.instance()]
    for instance, output in zip(instances, got, strict=True):
        instance.bind([address(given)], [address(output)])
    for instance in (instances[0], instances[0], instances[1]):
        instance.run()
    assert [int(output[0, 0]) for output in got] == [2, 1]


def test_state_is_unchanged_if_a_run_fails(code: Path, empty: Path) -> None:
    config = deepcopy(COUNTING)
    config["plan"]["calls"].append(["fails_at_3", [3, 3]])
    failing = FUNCTIONS + "\nint32_t fails_at_3(void* const* o) { static int n; return ++n == 3; }"
    instance = _instance(config, compiled(failing, folder=empty.parent), empty)
    given, got = tensor(1), tensor()
    instance.bind([address(given)], [address(got)])
    instance.run()
    instance.run()
    with pytest.raises(OctetError):
        instance.run()
    instance.run()
    assert got[0, 0] == 3


def test_the_caller_may_keep_the_state(code: Path, empty: Path) -> None:
    instance = _instance(COUNTING, code, empty)
    given, got, before, after = tensor(1), tensor(), tensor(40), tensor()
    instance.bind([address(given)], [address(got)])
    instance.bind_states([address(before)], [address(after)])
    instance.run()
    instance.run()
    assert (before[0, 0], after[0, 0], got[0, 0]) == (40, 41, 41)
    with pytest.raises(InvalidTensor, match="the states of this instance are kept by the caller"):
        instance.reset()
    instance.bind_states(None, None)
    instance.run()
    assert got[0, 0] == 1


def test_a_state_must_not_be_read_and_written_at_one_address(code: Path, empty: Path) -> None:
    instance, state = _instance(COUNTING, code, empty), tensor()
    with pytest.raises(InvalidTensor, match=r"state 0 \(state0\) has the same address before and after the run"):
        instance.bind_states([address(state)], [address(state)])


@pytest.mark.parametrize(
    ("datatype", "initial", "expected"),
    [
        ("INT32", -7, np.full(LENGTH, -7, "<i4")),
        ("INT8", -128, np.full(LENGTH, -128, "i1")),
        ("UINT16", 65535, np.full(LENGTH, 65535, "<u2")),
        ("INT64", -(1 << 63), np.full(LENGTH, -(1 << 63), "<i8")),
        ("BOOL", True, np.full(LENGTH, 1, "?")),
        ("FP32", 0.1, np.full(LENGTH, 0.1, "<f4")),
        ("FP32", -3, np.full(LENGTH, -3, "<f4")),
        ("UINT8", base64.b64encode(bytes(range(LENGTH))).decode(), np.arange(LENGTH, dtype="u1")),
    ],
)
def test_a_state_has_the_initial_value_of_the_signature(
    datatype: str, initial: Any, expected: Any, code: Path, empty: Path
) -> None:
    config = config_of([*_STRAIGHT, ("next_state", 0)], [("twice", [0, 1])], copies=[], states=1)
    config["signature"]["states"][0] |= {"datatype": datatype, "initial": initial}
    size = expected.nbytes
    config["plan"]["buffers"][2][2] = size
    config["plan"]["calls"].append(["nothing", [2]])
    model = NativeModel.load_files(canonical_json(config), code, empty)
    memory = ctypes.create_string_buffer(size)
    model.initial_state(0, ctypes.addressof(memory))
    assert memory.raw == expected.tobytes()


@pytest.mark.parametrize("symbol", ["shared_twice", "through_workspace"])
def test_compiled_functions_can_call_the_runtime(symbol: str, code: Path, empty: Path) -> None:
    instance = _instance(config_of(_STRAIGHT, [(symbol, [0, 1])]), code, empty)
    given, got = tensor(np.arange(LENGTH)), tensor()
    instance.bind([address(given)], [address(got)])
    instance.run()
    assert got[0].tolist() == [(2 if symbol == "shared_twice" else 1) * each for each in range(LENGTH)]


def test_a_function_is_called_alone(code: Path, empty: Path) -> None:
    model = NativeModel.load_files(canonical_json(config_of(_STRAIGHT, [("twice", [0, 1])])), code, empty)
    given, got = tensor(21), tensor()
    function, broken = model.symbol("twice"), model.symbol("broken")
    assert function is not None
    assert broken is not None
    NativeTeam.of_this_process().call(1, function, [address(given), address(got)])
    assert got[0, 0] == 42
    assert model.symbol("getpid") is None
    with pytest.raises(OctetError, match="the function failed with code 7"):
        NativeTeam.of_this_process().call(1, broken, [0])


def test_the_mark_is_set_while_compiled_code_runs(code: Path, empty: Path) -> None:
    looking = FUNCTIONS + (
        "\nint32_t look(void* const* o) { ((int32_t*)o[1])[0] = **(unsigned char**)o[0]; return 0; }"
    )
    instance = _instance(config_of(_STRAIGHT, [("look", [0, 1])]), compiled(looking, folder=empty.parent), empty)
    mark = ctypes.c_uint8(0)
    given, got = tensor(), tensor()
    given.reshape(-1)[:2].view(np.uint64)[0] = ctypes.addressof(mark)
    instance.bind([address(given)], [address(got)])
    instance.mark(ctypes.addressof(mark))
    instance.run()
    assert (got[0, 0], mark.value) == (1, 0)


def test_an_instance_serves_one_call_at_a_time(code: Path, empty: Path) -> None:
    waiting = FUNCTIONS + (
        "\nint32_t wait(void* const* o) { volatile int32_t* go = o[0]; *(volatile int32_t*)o[1] = 1;"
        " while (!*go); return 0; }"
    )
    instance = _instance(config_of(_STRAIGHT, [("wait", [0, 1])]), compiled(waiting, folder=empty.parent), empty)
    go, begun = tensor(), tensor()
    instance.bind([address(go)], [address(begun)])
    thread = threading.Thread(target=instance.run)
    thread.start()
    while not begun[0, 0]:
        pass
    try:
        with pytest.raises(InvalidTensor, match="the instance is used by another thread"):
            instance.run()
    finally:
        go[...] = 1
        thread.join()
    instance.run()


def test_a_closed_instance_raises(code: Path, constants: Path) -> None:
    instance = _instance(SIMPLE, code, constants)
    instance.close()
    with pytest.raises(InvalidTensor, match="the instance was closed"):
        instance.run()


def test_a_large_arena_is_aligned_to_huge_pages(code: Path, empty: Path) -> None:
    size = 5 << 20
    config = config_of(
        [("input", 0), ("output", 0), ("arena", size - 64)], [("twice", [0, 2]), ("twice", [2, 1])], arena_bytes=size
    )
    instance = _instance(config, code, empty)
    given, got = tensor(3), tensor()
    instance.bind([address(given)], [address(got)])
    instance.run()
    assert got[0, 0] == 12
