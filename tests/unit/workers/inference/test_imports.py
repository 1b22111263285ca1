"""Tests of the modules that the serving half must not import."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_by(statement: str) -> set[str]:
    """Returns the modules in a fresh process after `statement`."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import service.api.oip", "import service.workers.inference.artifacts"])
def test_the_serving_half_never_imports_the_compiler(statement: str) -> None:
    modules = loaded_by(statement)
    assert not {name for name in modules if name.startswith("service.compiler")}
    assert "tvm" not in modules


def test_queueing_and_the_registry_do_not_import_tvm() -> None:
    modules = loaded_by("import service.workers.inference")
    assert not {"tvm", "fastapi", "sqlalchemy"} & modules
