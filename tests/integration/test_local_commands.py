"""Commands without a server: compile to a folder, run the artifact, and verify it.

Commands that compile run in this process if the test is about another command, so that they share one zygote. Other
commands run in new processes: those that run an artifact fork, which a process with threads must not.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cache import OciLayout
from service.cli.app import app
from service.core.artifacts.artifact import ARTIFACT_TYPE, LIBRARY_MEDIA_TYPE
from service.core.digest import Digest
from service.core.target import TARGETS, detect_host
from tests.support.assembly import constructor
from tests.support.poison import with_library
from tests.support.waiting import WORK_TIMEOUT_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text())
MODEL = EXAMPLES / "digits_int8.tflite"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled") / "digits.octet"
    compile_here(MODEL, folder)
    return folder


@pytest.fixture
def copy(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "copy"))


def test_compile_prints_the_comparison_and_the_next_command(tmp_path: Path) -> None:
    process = octet("compile", EXAMPLES / "digits_uint8.tflite", "--output", tmp_path / "out")
    found = r"checked +against LiteRT [\d.]+ \(.*BUILTIN_REF\): all 2,780 values from 278 inputs are equal"
    assert re.search(found, process.stdout)
    assert f"octet run {tmp_path / 'out'} INPUT" in process.stdout
    stages = [line.split()[1] for line in process.stderr.splitlines() if line.startswith("  ✓")]
    assert stages == ["import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"]


@pytest.mark.parametrize("digit", [2, 8])
def test_run_gives_the_output_of_the_reference_kernels(compiled: Path, digit: int, tmp_path: Path) -> None:
    answer = octet_json("run", compiled, EXAMPLES / "digits" / f"{digit}.png", "--save", tmp_path / "scores.npy")
    (scores,) = answer["outputs"]
    stored = EXPECTED[MODEL.name]["reference"][digit]
    assert scores["data"] == [(each + 128) / 256 for each in stored]
    assert answer["top"][0]["class"] == digit
    assert np.load(tmp_path / "scores.npy").ravel().tolist() == scores["data"]


def test_run_takes_a_tensor(compiled: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 16, 16, 1), -128, np.int8))
    answer = octet_json("run", compiled, tmp_path / "x.npy", "--raw")["outputs"][0]
    assert (answer["datatype"], answer["shape"]) == ("INT8", [1, 10])


def test_run_rejects_a_tensor_with_another_shape(compiled: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8, 1), np.int8))
    error = octet_json("run", compiled, tmp_path / "x.npy", status=1)["error"]
    assert error["code"] == "invalid_tensor"
    assert "[1, 16, 16, 1]" in error["message"]


def test_run_rejects_a_wrong_number_of_inputs(compiled: Path) -> None:
    picture = EXAMPLES / "digits" / "2.png"
    assert octet_json("run", compiled, picture, picture, status=1)["error"]["code"] == "invalid_input"


@pytest.mark.slow  # test_reproducible.py compares artifacts too
def test_compiling_again_gives_the_same_artifact(compiled: Path) -> None:
    first = octet_json("verify", compiled)
    again = compile_here(MODEL, compiled)
    assert first["verified"] is True
    assert [entry["digest"] for entry in _artifacts(compiled)] == [again["artifact"]]


def test_verify_fails_if_the_outputs_differ(copy: Path) -> None:
    """The artifact has the expected outputs of the other sample model instead of its own."""
    compile_here(EXAMPLES / "digits_uint8.tflite", copy.parent / "other")
    from service.core.artifacts.artifact import Report

    other, layout = OciLayout.open(copy.parent / "other"), OciLayout.open(copy)
    answers = other.attached(Digest(_artifacts(other.root)[0]["digest"]), Report.VECTORS)
    assert answers is not None
    layout.attach(Digest(_artifacts(copy)[0]["digest"]), Report.VECTORS, answers)
    assert octet_json("verify", copy, status=1)["verified"] is False


def test_a_damaged_folder_is_rejected(copy: Path) -> None:
    layers = OciLayout.open(copy).manifest(Digest(_artifacts(copy)[0]["digest"])).layers
    (layer,) = (layer for layer in layers if layer.media_type == LIBRARY_MEDIA_TYPE)
    library = copy / "blobs" / "sha256" / layer.digest.removeprefix("sha256:")
    library.chmod(0o644)
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)
    assert octet_json("run", copy, EXAMPLES / "digits" / "2.png", status=1)["error"]["code"] == "corrupt_blob"


@pytest.fixture
def armed(copy: Path, tmp_path: Path) -> tuple[Path, Digest, Path]:
    """Yields a folder with an artifact whose library has a constructor, the artifact, and the file that the constructor
    creates.
    """
    made = tmp_path / "made"
    library = constructor(tmp_path, made, detect_host().architecture)
    ctypes.CDLL(str(library))
    made.unlink()  # shows that the constructor works
    layout = OciLayout.open(copy)
    return copy, with_library(layout, Digest(_artifacts(copy)[0]["digest"]), library.read_bytes()), made


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_library_with_a_constructor_is_refused_before_it_is_loaded(
    armed: tuple[Path, Digest, Path], command: str
) -> None:
    folder, artifact, made = armed
    inputs = [EXAMPLES / "digits" / "2.png"] if command == "run" else []
    error = octet_json(command, folder, *inputs, "--artifact", artifact, status=1)["error"]
    assert error["code"] == "unsafe_library"
    assert "initializers (DT_INIT_ARRAY)" in error["message"]
    assert not made.exists()


def test_a_folder_for_another_machine_is_compiled_and_reported_as_unverified(tmp_path: Path) -> None:
    other = next(target for target in TARGETS if not target.runs_on(detect_host()))
    printed = printed_here("compile", MODEL, "--target", other.name, "--output", tmp_path / "out")
    assert "not checked this host lacks" in printed
    error = octet_json("run", tmp_path / "out", EXAMPLES / "digits" / "2.png", status=1)["error"]
    assert error["code"] == "unsupported"
    assert other.name in error["message"]


def octet(*arguments: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert process.returncode == status, process.stderr
    return process


def compile_here(model: Path, folder: Path) -> Any:
    """Runs `octet compile` in this process, and returns what it prints."""
    return json.loads(printed_here("compile", model, "--output", folder, "--json").splitlines()[-1])


def printed_here(*arguments: object) -> str:
    """Runs a command in this process, and returns its standard output."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.stdout


def octet_json(*arguments: object, status: int = 0) -> Any:
    return json.loads(octet(*arguments, "--json", status=status).stdout)


def _artifacts(folder: Path) -> list[dict[str, Any]]:
    manifests = json.loads((folder / "index.json").read_text())["manifests"]
    return [entry for entry in manifests if entry.get("artifactType") == ARTIFACT_TYPE]


@pytest.mark.slow
def test_a_graph_that_was_printed_is_compiled(tmp_path: Path) -> None:
    text = printed_here("inspect", MODEL, "--graph", "--constants")
    graph = tmp_path / "digits.qnn"
    graph.write_text(text)
    assert printed_here("inspect", graph, "--graph", "--constants") == text
    compile_here(graph, tmp_path / "from_text")
    answer = octet_json("run", tmp_path / "from_text", EXAMPLES / "digits" / "8.png")
    stored = EXPECTED[MODEL.name]["reference"][8]
    assert answer["outputs"][0]["data"] == stored
