"""Without the packages of the compiler and the server, models still run, and other commands report what is missing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.errors import Unsupported
from service.core.system.installed import require_glibc
from tests.support.without_package import octet_without

OUTPUT = object()  # a new folder
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _server_packages() -> tuple[str, ...]:
    """Returns the folders in site-packages that the extras `server` and `worker` install. The folder of `tflite` is
    excluded, because its name is a prefix of another's.
    """
    required = importlib.metadata.requires("octet-serve") or []
    extras = re.compile(r'(?!octet-serve)([\w-]+).* extra == "(server|worker)"')
    names = [found[1] for found in map(extras.match, required) if found]
    folders = {"apache-tvm": "tvm", "apache-tvm-ffi": "tvm_ffi", "opentelemetry-sdk": "opentelemetry"}
    others = ("apache_tvm", "multipart", "python_multipart", "starlette")
    return (*(folders.get(name, name.replace("-", "_")) for name in names), *others)


WITHOUT = _server_packages()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "digits"
    command = [sys.executable, "-m", "service.cli", "compile", str(EXAMPLES / "digits_int8.tflite"), "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_the_compiler_and_the_server_are_not_installed() -> None:
    assert {"tvm", "ziglang", "fastapi", "sqlalchemy", "uvicorn", "alembic"} <= set(WITHOUT)


def test_models_run(artifact: Path, tmp_path: Path) -> None:
    picture = EXAMPLES / "digits" / "2.png"
    done = octet_without(WITHOUT, tmp_path, "run", artifact, picture, "--labels", EXAMPLES / "labels.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.lstrip().startswith("2 ")


@pytest.mark.parametrize("command", [("verify",), ("bench", "--seconds", "0.1"), ("explain", "--seconds", "0.1")])
def test_models_are_verified_and_measured(command: tuple[str, ...], artifact: Path, tmp_path: Path) -> None:
    # The sandbox lets children read the folders in which packages are installed, but not the targets of the links here.
    done = octet_without(WITHOUT, tmp_path, command[0], artifact, *command[1:], "--unsandboxed")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("compile", EXAMPLES / "digits_int8.tflite", "-o", OUTPUT),
        ("inspect", EXAMPLES / "digits_int8.tflite"),
        ("serve",),
        ("compile-worker",),
        ("worker",),
        ("api",),
        ("gc",),
    ],
    ids=lambda words: words[0],
)
def test_missing_packages_are_named(command: tuple[object, ...], tmp_path: Path) -> None:
    words = [tmp_path / "out" if word is OUTPUT else word for word in command]
    done = octet_without(WITHOUT, tmp_path, *words)
    assert done.returncode == 1
    assert "which is not installed: this installation only runs" in done.stderr
    assert "pip install 'octet-serve[server]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("--help",), ("doctor",)])
def test_commands_describe_the_machine(command: tuple[str, ...], tmp_path: Path) -> None:
    done = octet_without(WITHOUT, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def _unknown(name: str) -> str:
    raise ValueError("unrecognized configuration name")  # Python raises this if the C library does not have the name


def test_a_c_library_other_than_glibc_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    require_glibc()
    monkeypatch.setattr(os, "confstr", _unknown)
    with pytest.raises(Unsupported, match=r"need glibc.*musl"):
        require_glibc()
