"""To run models, only NumPy and Octet's own package must be installed. Both are small."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.artifacts import compile_model
from benchmarks.memory.footprint import (
    Environment,
    build_wheel,
    installed_bytes,
    make_environment,
    resident_peak_bytes,
)
from service import runtime
from tests.support.shared_data import require_shared_data

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="there are kernels for x86-64 only"),
]

_ANSWER = """
import sys, numpy
from importlib.metadata import distributions
from service import runtime
model = runtime.load(sys.argv[1])
print(model(numpy.load(sys.argv[2])).tobytes().hex())
print(*sorted({each.name for each in distributions()} - {"pip", "setuptools"}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("environment")
    return make_environment(folder / "venv", build_wheel(folder))


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compiled("mobilenet_v2.int8", tmp_path_factory)


@pytest.fixture(scope="module")
def keywords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compiled("kws_ref_model", tmp_path_factory)


def _compiled(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = require_shared_data() / "models" / "tflite" / f"{name}.tflite"
    folder = tmp_path_factory.mktemp("artifact") / name
    compile_model(model, folder)
    return folder


def test_it_computes_the_same_as_here(environment: Environment, keywords: Path, tmp_path: Path) -> None:
    model = runtime.load(keywords)
    [spec] = model.signature.inputs
    given = np.random.default_rng(0).integers(-128, 128, spec.shape).astype(spec.dtype)
    np.save(tmp_path / "input.npy", given)
    answer, installed = environment.output(_ANSWER, str(keywords), str(tmp_path / "input.npy")).splitlines()
    assert answer == model(given).tobytes().hex()
    assert installed == "numpy octet-serve"


def test_the_package_is_small(environment: Environment) -> None:
    assert environment.package_bytes <= 40e6


def test_the_command_and_its_requirements_take_64_megabytes(tmp_path: Path, keywords: Path) -> None:
    """The limit excludes Python and NumPy. Running keyword spotting takes another 60 MB of memory."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    runtime_only = Environment(tmp_path / "venv")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(runtime_only.python))
    subprocess.run([*pip, "install", f"{build_wheel(tmp_path)}[runtime]"], check=True)
    assert installed_bytes(runtime_only) <= 64e6
    np.save(tmp_path / "input.npy", np.zeros((1, 49, 10, 1), np.int8))
    octet = (str(runtime_only.python), "-m", "service.cli")
    assert _peak_bytes(*octet, "run", str(keywords), str(tmp_path / "input.npy")) <= 60 << 20


def _peak_bytes(*command: str) -> int:
    """Returns the peak memory in this process or in one of its children, whichever is larger."""
    measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    measure += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", measure, *command], check=True, capture_output=True, text=True)
    return int(done.stdout) << 10


def test_it_is_imported_in_60_ms(environment: Environment) -> None:
    assert environment.import_s() <= 0.06  # processor time, because other processes may compute on this machine


def test_mobilenet_takes_25_megabytes(environment: Environment, mobilenet: Path) -> None:
    assert environment.pss_bytes(mobilenet) <= 25e6


def test_keyword_spotting_in_c_takes_2_megabytes(keywords: Path, tmp_path: Path) -> None:
    assert resident_peak_bytes(keywords, bytes(490), tmp_path) <= 2 << 20
