"""Takes out of an environment what no process of Octet's loads, for the images: `python slim.py ENVIRONMENT`.

Needs `strip` of binutils, and nothing of the environment's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

# In any package. Type stubs, tests and C++ headers are for those who develop.
_EVERYWHERE = ("**/*.pyi", "**/tests", "**/include")
# In the packages that are there.
_UNUSED = (
    "ziglang/lib",  # of the C++ compiler; the linker is in the program
    "nvidia/cuda_nvrtc/lib/*.alt.*",  # the same library once more, linked otherwise
    "tvm/3rdparty",
    "tvm/src",
    "torch/bin/[!t]*",  # all but torch_shm_manager, without which it is not imported
    "torch/bin/test_*",
    "torch/share",
    "torch/test",
    "torch/lib/*test*",
    "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
    "ai_edge_litert/tools",  # converters
    "ai_edge_litert/vendors",  # compilers for other devices
    "onnxruntime/capi/libonnxruntime.so*",  # for C; Python's module has all of it inside
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
    # Pictures are PNG or JPEG.
    "PIL/_avif.*",
    "PIL/_webp.*",
    "PIL/_imagingcms.*",
    "pillow.libs/libavif*",
    "pillow.libs/liblcms2*",
    "pillow.libs/libwebp*",
)


# What is loaded on demand, beside all modules of Octet's.
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
    """Args: packages: a folder `site-packages`."""
    for pattern in (*_EVERYWHERE, *_UNUSED):
        for path in list(packages.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # its folder may be gone
    for path in packages.rglob("*.so*"):
        # Libraries that wheels bring along in folders *.libs were rewritten by a tool after which strip breaks them.
        if path.is_file() and not path.is_symlink() and not path.parent.name.endswith(".libs"):
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def compile_imported(python: Path, packages: Path) -> None:
    """Leaves the bytecode of what is imported, so that a read-only image starts as fast as one that may write it.

    Raises:
        CalledProcessError: a module that is there cannot be imported.
    """
    writing = {"PYTHONDONTWRITEBYTECODE": ""}  # empty: it writes
    # In two processes, as they run: none that compiles or serves loads torch.
    for names in (_ON_DEMAND, _modules(packages)):
        subprocess.run([python, "-c", _IMPORT, *names], env=writing, check=True)


def _modules(packages: Path) -> list[str]:
    """Octet's own, but scripts."""
    sources = (path.relative_to(packages) for path in (packages / "service").rglob("*.py"))
    chosen = (path for path in sources if path.stem != "__main__" and "migrations" not in path.parts)
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in chosen)


if __name__ == "__main__":
    environment = Path(sys.argv[1])
    (found,) = environment.glob("lib/python3*/site-packages")
    slim(found)
    compile_imported(environment / "bin" / "python", found)
