"""Tests of which modules are imported in order to run a model. Imports take ten times as long on a Raspberry Pi."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys, numpy
before = set(sys.modules)
from service.runtime import load
print(*sorted(set(sys.modules) - before))
"""
_MOST_MODULES = 75  # packages and NumPy's lazily imported modules included
_UNUSED = {
    "email",
    "importlib.metadata",
    "tempfile",
    "uuid",
    "zipfile",
    "service.core.verification.witnesses",
    "tvm_ffi",
}


def test_running_a_model_imports_few_modules() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "service.runtime.loading" in loaded
    assert loaded & _UNUSED == set()
    assert len(loaded) <= _MOST_MODULES, sorted(loaded)


def test_lazily_imported_names_are_found() -> None:
    program = "from service.runtime import compare, verify; import service; print(service.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0.")
