"""Tests of the commands against a server: interactive output, and output for scripts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compiled import EXAMPLES
from tests.support.serving import INT8, UINT8, serving
from tests.support.waiting import WORK_TIMEOUT_S

PICTURE = EXAMPLES / "digits" / "2.png"
EXPECTED = json.loads((EXAMPLES / "expected.json").read_text())
PUSHED = (EXAMPLES / INT8, "--name", "digits")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("data")) as served:
        octet(served.url, "push", *PUSHED)
        yield served.url


def test_push_shows_stages_the_checks_and_the_next_command(server: str) -> None:
    process = octet(server, "push", EXAMPLES / UINT8)
    stages = [line.split()[1] for line in process.stderr.splitlines() if line.startswith("  ✓")]
    assert stages == ["fetch", "import", "select", "legalize", "canonicalize", "codegen", "link", "verify", "publish"]
    assert re.search(r"checked +against LiteRT .*: all 2,780 values from 278 inputs are equal", process.stdout)
    assert process.stdout.endswith(f"Next: octet predict digits_uint8 INPUT --server {server}\n")


def test_pushing_again_is_a_cache_hit_and_shows_no_stages(server: str) -> None:
    again = octet_json(server, "push", *PUSHED)
    assert again["cached"] is True
    assert again["build"]["state"] == "succeeded"
    assert again["reports"]["numerics"]["verified"] is True
    assert octet(server, "push", *PUSHED).stderr == ""


def test_predict_shows_the_output_of_the_reference_kernels(server: str) -> None:
    answer = octet_json(server, "predict", "digits", PICTURE, "--labels", EXAMPLES / "labels.txt")
    stored = EXPECTED[INT8]["reference"][2]
    assert answer["outputs"][0]["data"] == [(each + 128) / 256 for each in stored]
    assert octet_json(server, "predict", "digits", PICTURE, "--raw")["outputs"][0]["data"] == stored
    assert answer["top"][0] == {"class": 2, "label": "2", "value": (113 + 128) / 256}


def test_predict_shows_the_best_class_first(server: str) -> None:
    assert octet(server, "predict", "digits", PICTURE).stdout.split()[::2][0] == "2"


def test_predict_takes_a_tensor_and_saves_the_output(server: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 16, 16, 1), np.int8))
    octet(server, "predict", "digits:1", tmp_path / "x.npy", "--save", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").shape == (1, 10)


def also(code: str, *command: object) -> Any:
    """Returns a case for `make test-all`. Unit tests of the routes have it too."""
    return pytest.param(command, code, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("push", EXAMPLES / "labels.txt"), "unsupported_format"),
        (("push", EXAMPLES / INT8, "--target", "vax"), "unknown_target"),
        also("unsupported", "push", EXAMPLES / INT8, "--numerics", "approximately"),
        also("invalid_input", "push", EXAMPLES / INT8, "--name", "No Name"),
        (("predict", "cats", PICTURE), "not_found"),
        also("not_found", "predict", "digits:9", PICTURE),
        also("unsupported_format", "predict", "digits", EXAMPLES / "README.md"),
        also("not_found", "models", "cats"),
        (("builds", "0" * 32), "not_found"),
    ],
)
def test_an_error_of_the_server_has_its_code(server: str, command: tuple[object, ...], code: str) -> None:
    assert octet_json(server, *command, status=1)["error"]["code"] == code


def test_a_model_that_cannot_be_built_fails_with_the_stage(server: str, tmp_path: Path) -> None:
    (tmp_path / "cut.tflite").write_bytes((EXAMPLES / INT8).read_bytes()[:5000])
    process = octet(server, "push", tmp_path / "cut.tflite", status=1)
    assert "malformed_model" in process.stderr
    assert "stage: import" in process.stderr
    assert process.stdout == ""


def test_models_and_builds_are_listed(server: str) -> None:
    assert "digits" in [model["name"] for model in octet_json(server, "models")]
    assert [version["version"] for version in octet_json(server, "models", "digits")] == [1]
    (build,) = octet_json(server, "builds", "--model", "digits")
    assert build["id"][:8] in octet(server, "builds").stdout
    assert build["artifact"] in octet(server, "builds", build["id"]).stdout


def test_a_detached_push_is_followed_by_builds_wait(server: str) -> None:
    detached = octet_json(server, "push", *PUSHED, "--target", "aarch64", "--detach")["build"]
    waited = octet_json(server, "builds", detached["id"], "--wait")
    assert waited["state"] == "succeeded"


def test_a_build_is_canceled(server: str) -> None:
    build = octet_json(server, "push", *PUSHED, "--target", "aarch64+i8mm", "--detach")["build"]
    octet(server, "builds", build["id"], "--cancel")
    assert "was canceled" in octet(server, "builds", build["id"], "--wait", status=1).stderr


def test_doctor_finds_the_server(server: str) -> None:
    (found,) = (check for check in octet_json(server, "doctor") if check["name"] == "server")
    assert found["state"] == "ok"


def test_a_port_in_use_is_reported(server: str, tmp_path: Path) -> None:
    port = server.rpartition(":")[2]
    process = octet(server, "serve", "--port", port, "--data-dir", tmp_path, status=1, flags=())
    assert f"127.0.0.1:{port}" in process.stderr
    assert "--port" in process.stderr


def octet(
    server: str, *arguments: object, status: int = 0, flags: tuple[str, ...] | None = None
) -> subprocess.CompletedProcess[str]:
    flags = ("--server", server) if flags is None else flags
    command = [sys.executable, "-m", "service.cli", *map(str, arguments), *flags]
    process = subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S)
    assert process.returncode == status, process.stdout + process.stderr
    return process


def octet_json(server: str, *arguments: object, status: int = 0) -> Any:
    return json.loads(octet(server, *arguments, "--json", status=status).stdout)
