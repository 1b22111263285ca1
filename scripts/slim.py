"""Removes everything from an environment that Octet's processes do not load, for the images: `python slim.py
ENVIRONMENT`.

Needs `strip` (binutils), and no package of the environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

# In all packages: type stubs, tests and C++ headers, which are needed only for development.
_EVERYWHERE = ("**/*.pyi", "**/tests", "**/include")
# Files to remove from some of the installed packages.
_UNUSED = (
    "ziglang/lib",  # Sources of the C++ compiler's libraries; only its linker is used, which is part of the program.
    "nvidia/cuda_nvrtc/lib/*.alt.*",  # A second copy of the library, linked differently.
    "tvm/3rdparty",
    "tvm/src",
    "torch/bin/[!t]*",  # all except torch_shm_manager, which importing torch needs
    "torch/bin/test_*",
    "torch/share",
    "torch/test",
    "torch/lib/*test*",
    "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
    "ai_edge_litert/tools",  # Converters.
    "ai_edge_litert/vendors",  # Compilers for other devices.
    "onnxruntime/capi/libonnxruntime.so*",  # For C programs; the Python module contains its own copy.
    "onnxruntime/datasets",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
    "numpy/f2py",
    "numpy/distutils",
    "sqlalchemy/testing",
    "sqlalchemy/dialects/mssql",
    "sqlalchemy/dialects/mysql",
    "sqlalchemy/dialects/oracle",
    # Only PNG and JPEG pictures are decoded.
    "PIL/_avif.*",
    "PIL/_webp.*",
    "PIL/_imagingcms.*",
    "pillow.libs/libavif*",
    "pillow.libs/liblcms2*",
    "pillow.libs/libwebp*",
)


# Modules that are loaded on demand, in addition to all of Octet's.
_ON_DEMAND = ("sqlalchemy.dialects.postgresql.psycopg", "torch.export", "torch.ao.quantization.fx._decomposed")
_IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print("not in this image:", name, "-", error)
"""


def slim(packages: Path) -> None:
    """Removes unused files from a folder `site-packages`, and strips its libraries."""
    for pattern in (*_EVERYWHERE, *_UNUSED):
        for path in list(packages.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # the folder of this path may have been removed already
    for path in packages.rglob("*.so*"):
        # The tool that puts libraries into *.libs folders of wheels rewrites them, after which strip would break them.
        if path.is_file() and not path.is_symlink() and not path.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def compile_imported(python: Path, packages: Path) -> None:
    """Compiles the modules that are imported to bytecode, so that a read-only image starts as fast as a writable one.

    Raises:
        CalledProcessError: an installed module cannot be imported.
    """
    writing = {"PYTHONDONTWRITEBYTECODE": ""}  # An empty value means that bytecode is written.
    # The modules are imported in two processes, because no process that compiles or serves loads torch at run time.
    for names in (_ON_DEMAND, _modules(packages)):
        subprocess.run([python, "-c", _IMPORT, *names], env=writing, check=True)


def _modules(packages: Path) -> list[str]:
    """Returns the names of Octet's modules, except scripts."""
    sources = (path.relative_to(packages) for path in (packages / "service").rglob("*.py"))
    chosen = (path for path in sources if path.stem != "__main__" and "migrations" not in path.parts)
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in chosen)


if __name__ == "__main__":
    environment = Path(sys.argv[1])
    (found,) = environment.glob("lib/python3*/site-packages")
    slim(found)
    compile_imported(environment / "bin" / "python", found)
