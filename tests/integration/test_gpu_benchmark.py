"""`benchmarks/gpu.sh` runs like on a new machine: from a package, with few Python packages, on an emulated GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import launches, layers
from benchmarks.gpu.package import _WHEELS
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.kernels.cuda import peak
from service.compiler.kernels.cuda.gpus import GPUS
from service.compiler.kernels.cuda.tiles import Unit
from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.sandbox import check
from service.core.builds.numerics import DEFAULT_MODE
from service.core.builds.options import with_batch
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support.compiling import Quiet
from tests.support.cuda import networks
from tests.support.cuda.machine_code import needs_nvrtc
from tests.support.cuda.recording import recorded
from tests.support.waiting import WORK_TIMEOUT_S
from tools.cuda_emulator import emulated_driver

pytestmark = [
    pytest.mark.slow,
    needs_nvrtc,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not all(each.available for each in check()), reason="this kernel cannot sandbox anything"),
]
_MODEL = Path(__file__).parents[1] / "fixtures" / "tflite" / "keywords.tflite"
# One test file with a single kernel, and one with several kernels.
_KERNEL_TESTS = [f"tests/unit/compiler/kernels/cuda/test_{name}.py" for name in ("resize", "networks")]
_CARD, _BATCHES, _PEAK = "sm_80", (1, 2), (2, 4)
_MOST_BYTES = 60e6
# The packages that the Python of the machine has, with the modules of each. PyTorch is not one of them.
_INSTALLED = ("numpy", "numpy.libs", "grpc", "typing_extensions.py")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that `prepare` has created."""
    folder = tmp_path_factory.mktemp("package") / "gpu"
    sizes = [*map(str, (*_BATCHES, "--peak", *_PEAK, "--layer-batch", 1))]
    launched = ["--recorded", str(folder.with_name("recorded")), "--kernel-tests", *_KERNEL_TESTS]
    command = [sys.executable, "-m", "benchmarks.gpu.prepare", str(folder), str(_MODEL), f"--target=cuda-{_CARD}"]
    subprocess.run([*command, "--no-wheels", "--batches", *sizes, *launched], cwd=emulated_driver.ROOT, check=True)
    return folder.with_name("gpu.tar.xz")


@pytest.fixture(scope="module")
def driver(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The emulated driver, and all kernels in the package."""
    folder = tmp_path_factory.mktemp("driver")
    emulated_driver.build_driver(folder)
    (folder / "settings").write_text("OCTET_EMULATED_CARDS=8.0\n")
    for batch in _BATCHES:
        scratch = folder / f"scratch-{batch}"
        scratch.mkdir()
        target, options = parse_target(f"cuda-{_CARD}"), with_batch(batch)
        request = CompileRequest(_MODEL, digest_of_file(_MODEL), target, DEFAULT_MODE["tflite"], options)
        compile_model(request, OciLayout(scratch / "store"), scratch, Quiet(), Settings())
        sources = {program.stem: program.read_text() for program in (scratch / "build").glob("octet_*.json")}
        networks.emulate(sources, _CARD, folder, checked=False)
    launched = launches.sources(recorded(package.with_name("recorded")))
    alone = {kernel.symbol: _source(kernel) for _, _, kernel in layers.kernels(GPUS[_CARD], 1)}
    networks.emulate(launched | alone, _CARD, folder, checked=False)
    for unit in filter(lambda unit: unit.macs(GPUS[_CARD]), Unit):
        kernel = peak.peak(unit, *_PEAK)
        networks.emulate({kernel.symbol: kernel.function.source}, _CARD, folder, checked=False)
    for link in folder.glob("*.so"):
        shutil.copy(link.resolve(), folder / "copy")  # the data plane can read only the driver's folder
        (folder / "copy").replace(link)
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that contains only `_INSTALLED` and what the server's settings require."""
    folder = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    names = [name.replace("-", "_") for name in _WHEELS]
    for name in (*_INSTALLED, *names, "dotenv"):
        installed = Path(sysconfig.get_path("purelib")) / name
        if installed.exists():
            (packages / name).symlink_to(installed)
    return folder / "bin" / "python"


@pytest.fixture
def unpacked(package: Path, tmp_path: Path) -> Iterator[Path]:
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    yield tmp_path / "gpu"
    shutil.rmtree(tmp_path / "gpu")


def measured(
    folder: Path, python: Path, driver: Path, *options: str, path: str = os.environ["PATH"]
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], str]:
    """Returns the finished process, its records, and its section of the results page."""
    environment = {"PATH": path, "HOME": str(folder), "PYTHON": str(python), "LD_LIBRARY_PATH": str(driver)}
    command = ["sh", str(folder / "benchmarks" / "gpu.sh"), "--seconds", "0.4", "--clients", "1", "3", *options]
    run = subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, check=False
    )
    found = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return run, found, (folder / "results.md").read_text()


def _source(kernel: Kernel) -> str:
    assert isinstance(kernel.function, DeviceFunction)
    return kernel.function.source


def of(found: list[dict[str, Any]], part: str) -> list[dict[str, Any]]:
    return [each for each in found if each["part"] == part]


def test_a_stranger_runs_it_once(package: Path, unpacked: Path, python: Path, driver: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    # A replacement for NVIDIA's tool, called with options and the program to check.
    (tools / "compute-sanitizer").write_text('#!/bin/sh\nshift 4\nexec "$@"\n')
    (tools / "compute-sanitizer").chmod(0o755)
    run, found, page = measured(unpacked, python, driver, path=f"{tools}:{os.environ['PATH']}")
    assert run.returncode == 0, run.stderr
    assert package.stat().st_size < _MOST_BYTES
    assert not (unpacked / "service" / "compiler").exists()
    assert [each["right"] for each in of(found, "right")] == [True, True]
    assert all(min(each["card_s"], each["whole_s"]) > 0 for each in of(found, "model"))
    assert {each["instruction"] for each in of(found, "peak")} == {"mma", "dp4a"}
    looked_at = [(each["tool"], each["found"]) for each in of(found, "sanitizer")]
    assert looked_at == 2 * [("memcheck", False), ("racecheck", False)]  # a model, and kernels launched by tests
    (launched,) = of(found, "kernels")
    assert launched["equal"] == launched["of"] > 30
    assert f"{launched['of']} of {launched['of']} equal the emulation's bytes" in page
    rights = [each["right"] for each in of(found, "layer") if "right" in each]
    assert rights == [True] * 16  # four shapes and two instructions, before and after
    assert page.count("| 3x3, ") == 8
    served = {(each["protocol"], each["clients"]): each for each in of(found, "serving")}
    assert served.keys() == {(protocol, clients) for protocol in ("REST", "gRPC") for clients in (1, 3)}
    assert all(each["wrong"] == 0 for each in served.values())
    assert all(each["per_s"] > 0 and each["p50_ms"] <= each["p99_ms"] for each in served.values())
    assert "nvidia-smi" in of(found, "failure")[0]["of"]
    rows = [line for line in page.splitlines() if line.startswith("| keywords |")]
    assert [row.split(" | ")[1:3] for row in rows[:2]] == [["1", "yes"], ["2", "yes"]]
    assert len(rows) == 2 + len(served)
    assert page.strip() in (unpacked / "benchmarks" / "GPU.md").read_text()
    assert "WRONG" not in page + run.stderr


def test_wrong_outputs_are_reported(unpacked: Path, python: Path, driver: Path) -> None:
    about = unpacked / "artifacts" / "about.json"
    described = json.loads(about.read_text())
    described["models"][0]["answers"] = "0" * 64
    about.write_text(json.dumps(described))
    run, found, page = measured(unpacked, python, driver, "--no-peer")
    assert run.returncode == 1
    assert "WRONG, OR NOT ANSWERED: keywords-b1, keywords over REST" in run.stderr
    assert page.startswith("**WRONG, OR NOT ANSWERED: keywords-b1, keywords over REST")
    assert "| keywords | 1 | **NO** |" in page
    assert "| keywords | 2 | yes |" in page
    assert len(of(found, "model")) == 2


def test_wrong_kernels_are_listed(unpacked: Path, python: Path, driver: Path) -> None:
    """One kernel computes wrong outputs, one fails to run, and one ends its process. The others are still compared."""
    folder = unpacked / "artifacts" / "kernels"
    launched = json.loads((folder / "launches.json").read_text())
    launched[1]["outputs"] = launched[1]["inputs"][-1:]  # the memory is not changed
    launched[2]["artifact"] = f"sha256:{'0' * 64}"
    launched[4]["inputs"] = ["missing"]
    (folder / "launches.json").write_text(json.dumps(launched))
    run, found, page = measured(unpacked, python, driver, "--no-peer", "--no-serving")
    assert run.returncode == 1
    other, missing, ended = of(found, "kernel")
    assert [each["kernel"] for each in (other, missing, ended)] == [
        launched[position]["kernel"] for position in (1, 2, 4)
    ]
    assert other["said"].startswith("output 0 differs in")
    assert missing["said"].startswith("NotFound")
    assert ended["said"].startswith("its process ended with it")
    (counted,) = of(found, "kernels")
    assert (counted["equal"], counted["different"]) == (len(launched) - 3, 3)
    assert page.startswith(f"**WRONG, OR NOT ANSWERED: {launched[1]['kernel']} of {launched[1]['test']}")


def test_a_failed_part_does_not_affect_the_others(unpacked: Path, python: Path, driver: Path) -> None:
    described = json.loads((unpacked / "artifacts" / "about.json").read_text())
    first = described["models"][0]["artifact"].removeprefix("sha256:")
    blob = unpacked / "artifacts" / "keywords" / "blobs" / "sha256" / first
    blob.chmod(0o644)
    blob.write_bytes(b"{}")
    run, found, page = measured(unpacked, python, driver)
    assert run.returncode == 1
    assert [each["name"] for each in of(found, "model")] == ["keywords-b2"]
    assert {each["instruction"] for each in of(found, "peak")} == {"mma", "dp4a"}
    failures = {each["of"]: each["said"] for each in of(found, "failure")}
    assert "CorruptBlob" in failures["keywords-b1"]
    assert failures["compute-sanitizer"] == "it is not installed, so nothing was checked"
    assert "| keywords | 1 | - | - |" in page
    assert "- keywords-b1: " in page


def test_a_missing_pytorch_is_reported(unpacked: Path, python: Path, driver: Path) -> None:
    about = unpacked / "artifacts" / "about.json"
    about.write_text(about.read_text().replace('"network": ""', '"network": "resnet50"'))
    run, found, _ = measured(unpacked, python, driver, "--no-serving")
    assert run.returncode == 0, run.stderr
    failures = {each["of"]: each["said"] for each in of(found, "failure")}
    assert "No module named 'torch'" in failures["PyTorch resnet50 bfloat16"]


def test_it_ends_within_the_time_limit(unpacked: Path, python: Path, driver: Path) -> None:
    run, found, page = measured(unpacked, python, driver, "--minutes", "0")
    assert run.returncode == 1
    assert not of(found, "model")
    assert "left out: the 0 minutes were over" in page


def test_a_missing_numpy_is_reported(unpacked: Path, tmp_path: Path, driver: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(tmp_path / "bare" / "bin" / "python")}
    command = ["sh", str(unpacked / "benchmarks" / "gpu.sh")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "has no NumPy: name another by PYTHON" in run.stderr
