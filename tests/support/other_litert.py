"""A LiteRT whose integer outputs are all off by one step, so that no build agrees with this reference runtime."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGE = "ai_edge_litert"
_INIT = """
__path__ = [{here!r}, {real!r}]
"""
_INTERPRETER = """
import importlib.util
import sys

import numpy as np

_spec = importlib.util.spec_from_file_location("{package}.real_interpreter", {real!r} + "/interpreter.py")
_real = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _real
_spec.loader.exec_module(_real)
OpResolverType = _real.OpResolverType


class Interpreter(_real.Interpreter):
    def get_tensor(self, index, subgraph_index=0):
        return np.bitwise_xor(super().get_tensor(index, subgraph_index), 1)
"""


def python_with_other_litert(folder: Path) -> Path:
    """Creates a virtual environment in `folder` that contains all packages of this one. The replaced LiteRT takes
    precedence over the LiteRT of these packages.

    Returns:
        The path of its interpreter. Processes that it starts, such as the compiler's children, use the environment too.
    """
    environment = folder / "environment"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    (environment / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    packages = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    real = Path(sysconfig.get_path("purelib"))
    package = packages / _PACKAGE
    package.mkdir(parents=True)
    (packages / "all_others.pth").write_text(f"{real}\n{_ROOT}\n")
    (package / "__init__.py").write_text(_INIT.format(here=str(package), real=str(real / _PACKAGE)))
    (package / "interpreter.py").write_text(_INTERPRETER.format(package=_PACKAGE, real=str(real / _PACKAGE)))
    return python
