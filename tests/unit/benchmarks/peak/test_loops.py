import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peak.instructions import INSTRUCTIONS, available, named
from benchmarks.peak.loops import Clock, Loop, check_code, compile_loop
from benchmarks.peak.theory import is_possible, starts_per_cycle
from service.core.target import detect_host

CPUINFO = "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: some CPU\n"
VECTORS_HERE = [it for it in available(detect_host().features) if it.register != "tmm"]
TILES_HERE = [it for it in available(detect_host().features) if it.register == "tmm"]

AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl"}
VNNI = AVX512 | {"avx512_vnni"}
# LLVM unrolls loops and selects encodings differently for each of these CPUs.
CPUS = {
    "haswell": AVX2,
    "alderlake": AVX2 | {"avx_vnni"},
    "skylake-avx512": AVX512,
    "icelake-server": VNNI,
    "sapphirerapids": VNNI | {"avx_vnni"},
    "znver4": VNNI,
    "znver5": VNNI | {"avx_vnni"},
}


@pytest.mark.parametrize(
    ("vendor", "family", "model", "flags", "register", "starts"),
    [
        ("AuthenticAMD", 25, 17, "flags\t: avx512_vnni", "zmm", 1),  # Zen 4
        ("AuthenticAMD", 25, 17, "flags\t: avx512_vnni", "ymm", 2),
        ("AuthenticAMD", 25, 1, "flags\t: avx2", "ymm", None),  # Zen 3.
        ("AuthenticAMD", 26, 2, "flags\t: avx512_vnni", "zmm", 2),  # Zen 5.
        ("GenuineIntel", 6, 143, "flags\t: avx512_vnni", "zmm", None),
    ],
)
def test_the_possible_rate_is_defined_for_some_cpus(
    vendor: str, family: int, model: int, flags: str, register: str, starts: int | None
) -> None:
    cpuinfo = CPUINFO.format(vendor=vendor, family=family, model=model) + flags + "\n"
    assert starts_per_cycle(cpuinfo, register) == starts


def test_a_loop_that_is_faster_than_possible_is_rejected() -> None:
    assert is_possible(1.02, 1)
    assert not is_possible(1.5, 1)
    assert is_possible(9.0, None)


def test_instructions_are_found_by_name_and_by_cpu_features() -> None:
    assert [it.name for it in available({"avx2", "fma"})] == ["vpmaddwd ymm", "vfmadd ymm"]
    assert "vpdpbusd ymm" in [it.name for it in available({"avx2", "fma", "avx_vnni"})]
    assert named("vpdpbusd zmm").macs == 64


def test_macs_are_the_products_of_a_register() -> None:
    assert {it.name for it in INSTRUCTIONS if it.macs != it.operand_lanes} == {"tdpbusd tmm"}


@pytest.mark.parametrize(("cpu", "name"), [(cpu, it.name) for cpu in CPUS for it in available(CPUS[cpu])])
def test_the_code_of_a_loop_has_every_product_on_every_cpu(cpu: str, name: str) -> None:
    """Compiles the loop without running it. `compile_loop` checks the code."""
    compile_loop(named(name), 1, cpu)


@pytest.mark.parametrize("encoding", ["", "{vex}\t", "{evex}\t"])
def test_a_loop_that_lost_a_product_is_refused(encoding: str) -> None:
    line = f"\t{encoding}vpdpbusd\t%ymm12, %ymm14, %ymm0\n"
    check_code(".LBB0_1:\n" + 12 * line, named("vpdpbusd ymm"))
    with pytest.raises(RuntimeError, match="a repetition has 12 of these instructions, but the basic blocks have 11"):
        check_code(".LBB0_1:\n" + 11 * line, named("vpdpbusd ymm"))
    with pytest.raises(RuntimeError, match="blocks have 2, 10"):
        check_code("before:\n" + 2 * line + ".LBB0_1:\n" + 10 * line, named("vpdpbusd ymm"))
    with pytest.raises(RuntimeError, match="blocks have none"):
        check_code(".LBB0_1:\n" + 12 * line, named("vpdpbusd zmm"))


@pytest.mark.parametrize("name", [it.name for it in VECTORS_HERE])
def test_a_loop_computes_the_right_result_at_a_possible_rate(name: str) -> None:
    """The loop checks its own code and result; see `Loop`."""
    loop = Loop(named(name), threads=1)
    assert loop.macs % named(name).macs == 0


@pytest.mark.skipif(not TILES_HERE, reason="this CPU has no tiles")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_of_tiles_computes_the_right_result(threads: int) -> None:
    """The loop checks its own code and result; see `TileLoop`. It runs in a new process, which requests the tiles."""
    code = "from benchmarks.peak.loops import prepare_threads; from benchmarks.peak.tiles import TileLoop\n"
    code += "from benchmarks.peak.instructions import named\n"
    code += f"prepare_threads({threads}); print(TileLoop(named('tdpbusd tmm'), {threads}).macs)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) % (threads * TILES_HERE[0].macs) == 0


def test_the_measured_clock_rate_is_plausible() -> None:
    assert 0.5 < Clock().ghz() < 8


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2 or not VECTORS_HERE, reason="needs two cores and AVX2")
def test_two_threads_run_in_parallel() -> None:
    code = "import os; from benchmarks.peak.loops import *; from benchmarks.peak.instructions import named\n"
    code += f"prepare_threads(2); print(Loop(named({VECTORS_HERE[-1].name!r}), 2).macs)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 2 * Loop(VECTORS_HERE[-1], 1).macs
