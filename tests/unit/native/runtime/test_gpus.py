"""Tests artifacts for a GPU on emulated GPUs: the results of an instance, and its behavior when the GPU fails."""

from __future__ import annotations

import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.digest import canonical_json
from service.runtime import octet_library
from tests.support.emulated_gpus import Files, attempt, bind, load_model, refusal
from tests.support.gpu_artifact import COUNTING, SIMPLE, on_gpu
from tests.support.native import SANITIZERS, built_program
from tests.support.small_artifact import CONSTANTS, LENGTH, address, config_of, tensor
from tools.cuda_emulator import emulated_driver

# --- Functions that run in children ----------------------------------------------------------------------------------


def _runs(library: str, constants: str) -> Any:
    model = load_model(SIMPLE, library, constants)
    instance = model.instance()
    given, got = bind(instance)
    instance.run()
    first = got.tolist()
    given += 1
    instance.run()
    second = got.tolist()
    other, elsewhere = bind(instance, 5)
    seconds = instance.run_timed()
    assert got.tolist() == second
    return first, second, elsewhere.tolist(), seconds, model.symbol("octet_add"), other.tolist()


def _stays(library: str, constants: str) -> Any:
    instance = load_model(COUNTING, library, constants).instance()
    given, got = bind(instance)
    instance.run()
    seen = []
    for _ in range(2):
        seconds = instance.run_resident(5)
        seen.append(int(got[0, 0]))
    instance.run()
    error = attempt(lambda: instance.run_resident(0))
    return seen, int(got[0, 0]), seconds, error, given.tolist()


def _leaves_nothing(library: str, constants: str) -> Any:
    import ctypes

    emulated = ctypes.CDLL("libcuda.so.1")
    emulated.octet_emulated_live.restype = ctypes.c_long
    counts = []
    for _ in range(2):
        model = load_model(COUNTING, library, constants)
        instances = [model.instance(), model.instance()]
        for instance in instances:
            kept = bind(instance)
            instance.run()
            instance.run_timed()
            instance.run_resident(2)
            del kept
        counts.append(emulated.octet_emulated_live())
        model.close()
        for instance in instances:
            instance.close()
        counts.append(emulated.octet_emulated_live())
    return counts, octet_library.cards()[0][0].used_bytes


def _sequence(library: str, constants: str) -> Any:
    instance = load_model(COUNTING, library, constants).instance()
    given, got = bind(instance)
    seen = []
    for _ in range(3):
        instance.run()
        seen.append(int(got[0, 5]))
    instance.run_timed()
    seen.append(int(got[0, 5]))
    instance.reset()
    instance.run()
    before, after = tensor(40), tensor()
    instance.bind_states([address(before)], [address(after)])
    instance.run()
    instance.run()
    callers = [int(before[0, 0]), int(after[0, 0]), int(got[0, 0])]
    error = attempt(instance.reset)
    instance.bind_states(None, None)
    instance.run()
    return seen, callers, error, int(got[0, 0]), given.tolist()


def _launches(library: str, constants: str, launch: list[int]) -> Any:
    config = on_gpu(config_of([("input", 0), ("output", 0)], [("launch", [0, 1])]), [launch])
    instance = load_model(config, library, constants).instance()
    given, got = bind(instance)
    instance.run()
    assert given[0, 0] == 1
    return got[0, :7].tolist()


def _instances(library: str, constants: str, config: Any, count: int) -> Any:
    model = load_model(config, library, constants)
    kept, error = [], ""
    for _ in range(count):
        error = attempt(lambda: kept.append(model.instance()))
    results = []
    for instance in kept:
        given, got = bind(instance)
        instance.run()
        results.append(int(got[0, 0] - given[0, 0]))
    return results, error, [gpu.used_bytes for gpu in octet_library.cards()[0]], model.is_lost


def _lost(library: str, constants: str) -> Any:
    model, other = load_model(SIMPLE, library, constants), load_model(SIMPLE, library, constants)
    instance, unhurt = model.instance(), other.instance()
    kept = [bind(instance), bind(unhurt)]
    instance.run()
    errors = [attempt(instance.run), attempt(instance.run), attempt(unhurt.run), attempt(model.instance)]
    return errors, model.is_lost, other.is_lost, len(kept)


def _cards(_library: str, _constants: str) -> Any:
    found, version = octet_library.cards()
    return (
        [[gpu.name, gpu.capability, gpu.memory_bytes] for gpu in found],
        version,
        octet_library.card_free_bytes(0),
    )


def _parallel(library: str, constants: str) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    model = load_model(SIMPLE, library, constants)

    def compute(value: int) -> bool:
        instance = model.instance()
        given, got = bind(instance, value)
        for _ in range(50):
            instance.run()
            if got.tolist() != (2 * (given + CONSTANTS[LENGTH:])).tolist():
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(compute, range(8)))


# --- Tests -----------------------------------------------------------------------------------------------------------


def test_a_run_reads_the_bound_inputs(files: Files) -> None:
    first, second, elsewhere, seconds, symbol, other = files.run(_runs)
    counted = CONSTANTS[LENGTH:]
    assert first == [(2 * (counted + 1)).tolist()]
    assert second == [(2 * (counted + 2)).tolist()]
    assert (elsewhere, other) == ([(2 * (counted + 5)).tolist()], [[5] * LENGTH])
    assert len(seconds) == 2
    assert all(0 <= each < 1 for each in seconds)
    assert symbol is None


def test_resident_runs_begin_with_the_same_states(files: Files) -> None:
    seen, afterwards, seconds, error, _ = files.run(_stays)
    assert seen == [2, 2]
    assert afterwards == 2
    assert 0 <= seconds < 1
    assert error.endswith(": the number of runs must be positive, not 0")


def test_no_memory_of_the_gpu_is_leaked(files: Files) -> None:
    (during, after, again, at_last), used_bytes = files.run(_leaves_nothing)
    assert during == again > 0
    assert (after, at_last, used_bytes) == (0, 0, 0)


def test_state_is_stored_on_the_gpu_or_by_the_caller(files: Files) -> None:
    seen, callers, error, begun_again, _ = files.run(_sequence)
    assert seen == [1, 2, 3, 4]
    assert callers == [40, 41, 41]
    assert "the states of this instance are kept by the caller" in error
    assert begun_again == 1


@pytest.mark.parametrize(
    "launch", [[1, 2, 3, 4, 5, 6, 0], [7, 1, 1, 1024, 1, 1, 48 << 10], [1, 1, 1, 32, 1, 1, 99 << 10]]
)
def test_a_call_is_launched_as_the_plan_specifies(launch: list[int], files: Files) -> None:
    assert files.run(_launches, launch) == launch


def test_more_shared_memory_than_the_gpu_has_is_refused(files: Files) -> None:
    config = on_gpu(config_of([("input", 0), ("output", 0)], [("launch", [0, 1])]), [[1, 1, 1, 1, 1, 1, 100 << 10]])
    error = files.run(refusal, config)
    assert "Unsupported: call 0 (octet_launch) requires 102400 bytes of shared memory, but GPU 0" in error


def test_a_process_uses_only_the_visible_gpus(files: Files) -> None:
    gpus = "8.6:1000000000;8.9:2000000000"
    everything = [["Emulated 8.6", 86, 10**9], ["Emulated 8.9", 89, 2 * 10**9]]
    assert files.run(_cards, cards=gpus) == [everything, 12090, 10**9]
    assert files.run(_cards, cards=gpus, CUDA_VISIBLE_DEVICES="1") == [everything[1:], 12090, 2 * 10**9]


_PARTITIONS = "9.0:10000000000:232448:MIG-1a2b3c4d;9.0:20000000000:232448:MIG-5e6f7a8b"


@pytest.mark.parametrize(
    ("gpus", "chosen", "memory_bytes"),
    [
        (_PARTITIONS, {}, [10**10]),
        (_PARTITIONS, {"CUDA_VISIBLE_DEVICES": "MIG-5e6f7a8b"}, [2 * 10**10]),
        (_PARTITIONS, {"CUDA_VISIBLE_DEVICES": "MIG-5e6f7a8b,MIG-1a2b3c4d"}, [2 * 10**10]),
        (_PARTITIONS, {"CUDA_VISIBLE_DEVICES": "MIG-00000000"}, None),
        ("8.0:1000000000:99000:GPU-1a;8.0:2000000000:99000:GPU-2b", {"CUDA_VISIBLE_DEVICES": "GPU-2b"}, [2 * 10**9]),
    ],
)
def test_a_card_or_a_partition_is_chosen_by_its_uuid(
    gpus: str, chosen: dict[str, str], memory_bytes: list[int] | None, files: Files
) -> None:
    if memory_bytes is None:
        assert "NVIDIA's driver shows no GPU to this process" in files.run(refusal, cards=gpus, **chosen)
    else:
        assert [each[2] for each in files.run(_cards, cards=gpus, **chosen)[0]] == memory_bytes


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LD_LIBRARY_PATH": ""}, "Unsupported: NVIDIA's driver is not installed: libcuda.so.1: cannot open"),
        ({"cards": ""}, "Unsupported: NVIDIA's driver shows no GPU to this process"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "Unsupported: NVIDIA's driver shows no GPU to this process"),
        (
            {"version": "11040"},
            "driver supports CUDA 11.4, but the kernels of an artifact need 12.0, which requires driver 525.60.13",
        ),
        (
            {"cards": "7.5"},
            r"built for compute capability 8.0, which no GPU here supports: GPU 0 (Emulated 7.5) has 7.5",
        ),
        ({"cards": "9.0"}, "which no GPU here supports: GPU 0 (Emulated 9.0) has 9.0"),
    ],
)
def test_missing_gpu_support_is_reported(settings: dict[str, str], words: str, files: Files) -> None:
    assert words in files.run(refusal, **settings)


def test_a_gpu_without_memory_is_reported(files: Files) -> None:
    config = deepcopy(SIMPLE)
    config["plan"]["arena_bytes"] = 30 << 20
    results, error, used, is_lost = files.run(_instances, config, 4, cards="8.0:100000000")
    assert len(results) == 3
    assert error == "MemoryError: an instance requires 31 MB, but GPU 0 (Emulated 8.0) has only 5 of 95 MB free"
    assert used[0] < 10**8
    assert not is_lost


def test_instances_are_spread_over_the_gpus_that_can_run_the_model(files: Files) -> None:
    config = deepcopy(SIMPLE)
    config["plan"]["arena_bytes"] = 30 << 20
    results, error, used, _ = files.run(_instances, config, 5, cards="8.0:100000000;7.5;8.6:70000000")
    assert (len(results), error) == (5, "")
    assert [each >> 20 for each in used] == [90, 0, 60]


@pytest.mark.parametrize(
    ("result", "name"), [(700, "ILLEGAL_ADDRESS"), (719, "LAUNCH_FAILED"), (214, "ECC_UNCORRECTABLE")]
)
def test_a_gpu_that_fails_is_lost_to_the_process(result: int, name: str, files: Files) -> None:
    (first, again, other, new), is_lost, other_is_lost, _ = files.run(_lost, fault=f"launch:3:{result}")
    failed = "OctetError: GPU 0 (Emulated 8.6) failed and cannot be used by this process any more"
    assert first == f"{failed}: the run: CUDA_ERROR_{name}"
    before = "OctetError: GPU 0 (Emulated 8.6) has failed and cannot be used by this process any more"
    assert (again, other, new) == (before, before, before)
    assert is_lost
    assert other_is_lost


def test_instances_run_at_the_same_time(files: Files) -> None:
    assert all(files.run(_parallel))


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", SANITIZERS)
def test_sanitizers_find_nothing(sanitizers: str, files: Files, tmp_path: Path) -> None:
    program = built_program("on_gpu", sanitizers)
    compiler = ("g++", "-g", "-O1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    driver = emulated_driver.build_driver(tmp_path / "driver", compiler)
    for config, one in ((SIMPLE, 2 * (CONSTANTS[LENGTH:] + 1)), (COUNTING, np.ones(LENGTH, np.int32))):
        (tmp_path / "config").write_bytes(canonical_json(config))
        for fault, expected in (("", " ".join(map(str, np.tile(one, 4))) + " "), ("launch:9:700", "")):
            environment = emulated_driver.environment(driver, files.kernels, fault=fault)
            command = [program, tmp_path / "config", files.library, files.constants]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
            assert (run.returncode, run.stdout, run.stderr) == (0, expected, "")
