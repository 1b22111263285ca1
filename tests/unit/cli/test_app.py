"""Tests of rules for every command: exit statuses, only JSON on stdout with --json, and errors with a remedy."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner, Result

from service.cli.app import app
from service.core.models.model import model_name_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MODEL, LABELS = EXAMPLES / "digits_int8.tflite", EXAMPLES / "labels.txt"
WITH_A_SERVER = (
    "serve",
    "api",
    "worker",
    "push",
    "predict",
    "models",
    "builds",
    "matrix",
    "compare",
    "promote",
    "rollback",
    "keys create",
    "audit",
    "quarantine",
)
WITHOUT = ("compile", "run", "verify", "explain", "bench", "doctor", "health", "gc", "compile-worker")
KEYS = ("keys create a", "keys list", "keys revoke a", "audit")
REMOTE = (
    *KEYS,
    "models",
    "builds",
    "matrix digits",
    f"compare digits {MODEL}",
    "quarantine",
    f"push {MODEL}",
    f"predict digits {MODEL}",
    "promote digits:1",
    "rollback digits",
)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address at which no server listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OCTET_SERVER", address)
        yield address


@pytest.mark.parametrize("command", ["", *WITH_A_SERVER, *WITHOUT])
def test_every_command_has_help(command: str) -> None:
    result = octet(f"{command} --help")
    assert result.exit_code == 0
    assert "--help" in result.stdout


def test_every_command_takes_json() -> None:
    commands = dict(_commands(typer.main.get_command(app)))
    assert {"serve", "compile-worker", "worker", "worker serve"} <= commands.keys()
    without = [name for name, command in commands.items() if not any("--json" in each.opts for each in command.params)]
    assert without == []


def _commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield " ".join(path), command
    for name, each in inner.items():
        yield from _commands(each, *path, name)


@pytest.mark.parametrize(
    "command",
    [
        "dance",
        "push",
        "push no-such-file",
        "predict digits x --parallel 0",
        f"compile {MODEL}",
        "run no-such-folder x.png",
        "builds --wait",
        "explain ./no-such-folder",
        f"bench {EXAMPLES} --threads 0",
        "serve --port x",
        "serve --port 70000",
        "worker --advertise x y",
        "worker --pool P!",
        "worker --port 1 serve digits",
    ],
)
def test_a_usage_error_has_exit_status_2_and_a_message_on_stderr(command: str) -> None:
    result = octet(command)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr


@pytest.mark.parametrize("command", ["push no-such-file", "predict", "bench m --threads 0", "dance"])
def test_a_usage_error_is_json_with_the_json_option(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *command.split(), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["code"], "--help" in error["hint"], done.stderr) == ("invalid_input", True, "")


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    result = octet(f"compile {MODEL} --output {tmp_path / 'file' / 'x'} --json")
    assert result.exit_code == 1
    assert str(tmp_path / "file" / "x") in json.loads(result.stdout)["error"]["message"]


@pytest.mark.parametrize("option", ["--output", "--curve"])
def test_quantizing_fails_early_if_its_result_cannot_be_written(option: str, tmp_path: Path) -> None:
    lost = tmp_path / "no" / "x.svg"
    result = octet(f"quantize {MODEL} --data {tmp_path} {option} {lost} --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["message"] == f"{lost}: the folder {lost.parent} does not exist"


@pytest.mark.parametrize("command", REMOTE)
def test_without_a_server_a_command_fails_with_a_hint_how_to_start_one(command: str, nowhere: str) -> None:
    result = octet(command)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert nowhere in result.stderr
    assert "octet serve" in result.stderr


@pytest.mark.parametrize("command", REMOTE)
def test_an_error_is_json_on_stdout_with_the_json_option(command: str, nowhere: str) -> None:
    result = octet(f"{command} --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == "server_unreachable"


def test_an_invalid_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_PORT", "http")
    result = octet("models")
    assert result.exit_code == 2
    assert "port" in result.stderr


def test_a_file_that_is_not_a_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    result = octet(f"compile {LABELS} --output {tmp_path / 'out'} --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == "unsupported_format"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("option", "code"), [("--target vax", "unknown_target"), ("--numerics approximately", "unsupported")]
)
def test_an_unknown_target_or_mode_is_refused(option: str, code: str, tmp_path: Path) -> None:
    result = octet(f"compile {MODEL} --output {tmp_path / 'out'} {option} --json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["error"]["code"] == code
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_an_artifact_is_named(tmp_path: Path) -> None:
    result = octet(f"run {tmp_path} {EXAMPLES / 'digits' / '2.png'}")
    assert result.exit_code == 1
    assert str(tmp_path) in result.stderr


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("mobilenet_v2.tflite", "mobilenet_v2"),
        ("My Model (final).tflite", "my-model-final"),
        ("_x_.tflite", "x"),
        ("Ünïcode.tflite", "n-code"),
        ("-.tflite", "model"),
        ("a" * 80 + ".tflite", "a" * 63),
    ],
)
def test_a_model_gets_the_name_of_its_file_without_invalid_characters(file: str, name: str) -> None:
    assert model_name_of(Path(file)) == name


def octet(command: str) -> Result:
    return CliRunner().invoke(app, command.split(), catch_exceptions=False)
