"""Python environments beside Octet's own."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from service.compiler.references import REFERENCES
from service.compiler.references.environment import Environment
from service.core.settings import Settings

HERE = Environment(Path(sys.executable))


def test_versions_are_those_of_the_environment() -> None:
    assert HERE.version("numpy") == version("numpy")
    assert HERE.version("no-such-package") is None


def test_a_virtual_environment_can_read_the_installation_that_it_is_based_on(tmp_path: Path) -> None:
    base, own = tmp_path / "base", tmp_path / "own"
    for folder in (base / "bin", base / "lib", own / "bin", own / "lib"):
        folder.mkdir(parents=True)
    (base / "bin" / "python").touch()
    (base / "secret").touch()
    (own / "pyvenv.cfg").touch()
    (own / "bin" / "python").symlink_to(base / "bin" / "python")
    environment = Environment(own / "bin" / "python")
    assert set(environment.readable()) == {own / "lib", own / "pyvenv.cfg", base / "lib"}
    assert environment.executable()[0] == own / "bin" / "python"


def test_a_setting_names_the_environment_of_a_runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OCTET_MXNET_PYTHON", raising=False)
    assert REFERENCES["mxnet"].version(Settings()) is None
    assert REFERENCES["mxnet"].environment(Settings()) is None
    assert REFERENCES["tflite"].version(Settings(torch_python=tmp_path)) == version("ai-edge-litert")
    assert REFERENCES["pt2"].version(Settings(torch_python=tmp_path / "bin" / "python")) is None
    assert REFERENCES["mxnet"].environment(Settings(mxnet_python=HERE.python)) == HERE
    assert REFERENCES["tflite"].environment(Settings(mxnet_python=HERE.python)) is None
