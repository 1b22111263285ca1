"""Tests the runtime's detection of aarch64 CPU features on CPUs that qemu emulates; /proc/cpuinfo shows the host's
there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.core.target import parse_target
from tests.support import emulated, emulated_models

_ROOT = Path(__file__).parents[4]
_MACHINE = emulated.MACHINES["aarch64"]
_MISSING = emulated_models.missing("aarch64")

pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"NOT TESTED: {_MISSING}")


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("probe")
    source, compiled, output = _ROOT / "tests/native/runtime/cpu_probe.cc", folder / "cpu_probe.o", folder / "cpu_probe"
    zig = (sys.executable, "-m", "ziglang")
    flags = ("-fno-rtti", "-fno-exceptions", "-Wall", "-Wextra", "-Werror", f"-I{_ROOT / 'service/native'}")
    where = ("-target", "aarch64-linux-gnu.2.28")  # with musl, the C++ library would have to be compiled first
    subprocess.run([*zig, "c++", *where, "-std=c++17", *flags, "-c", str(source), "-o", str(compiled)], check=True)
    subprocess.run([*zig, "cc", *where, str(compiled), "-o", str(output)], check=True)
    return output


@pytest.mark.parametrize(
    ("cpu", "target", "missing"),
    [
        ("cortex-a53", "aarch64", ""),
        ("cortex-a53", "aarch64+dotprod", "asimddp"),
        ("cortex-a53", "aarch64+i8mm", "asimddp, i8mm"),
        ("neoverse-n1", "aarch64+dotprod", ""),
        ("neoverse-n1", "aarch64+i8mm", "i8mm"),
        ("max", "aarch64+i8mm", ""),
    ],
)
def test_the_features_are_those_of_the_cpu(probe: Path, cpu: str, target: str, missing: str) -> None:
    features = _run_probe(probe, cpu, *sorted(parse_target(target).features))
    assert features == (f"this CPU lacks {missing}, which the artifact was built for" if missing else "")


def test_unknown_features_are_missing(probe: Path) -> None:
    assert "avx2, asim, asimddp2" in _run_probe(probe, "max", "avx2", "asim", "asimddp2", "sve", "sve2")


def _run_probe(probe: Path, cpu: str, *features: str) -> str:
    command = [str(_MACHINE.emulator), "-cpu", cpu, "-L", str(emulated_models.c_library(_MACHINE)), str(probe)]
    done = subprocess.run([*command, *features], capture_output=True, text=True)
    assert done.returncode == bool(done.stdout), done.stderr
    return done.stdout.strip()
