"""Creates the environments of the peers, outside the checkout, from pinned versions:

    python -m benchmarks.setup_peers            # the peers
    python -m benchmarks.setup_peers --making   # and those that create models and plots

For the contest, the development environment already contains LiteRT. An environment that matches its pins is not
changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.home import Home, default_home

_STAMP = "octet-bench-pins.txt"


@dataclass(frozen=True)
class Environment:
    """The packages of an environment.

    Attributes:
        alone: packages that are installed without their dependencies.
        making: true if the environment is only for creating models and plots.
        python: the interpreter from which it is created.
    """

    name: str
    packages: Sequence[str]
    alone: Sequence[str] = ()
    making: bool = False
    python: str = sys.executable


# numpy and Pillow are pinned because our own code uses them; pip resolves the frameworks' other dependencies.
_COMMON = ("numpy==2.4.6", "pillow==13.0.0")
_SYSTEM_PYTHON = "/usr/bin/python3"  # a distribution's interpreter, whose libpython is shared: Triton loads it
_PYTHON_3_11 = "python3.11"
_COMPUTING = ("onnxruntime==1.31.1", "openvino==2026.4.1", "ai-edge-litert==2.3.0", "numpy==2.4.6")
ENVIRONMENTS = (
    Environment("onnxruntime", ("onnxruntime==1.31.1", "onnx==1.23.2", "sympy==1.14.0", *_COMMON)),
    Environment("openvino", ("openvino==2026.4.1", *_COMMON)),
    # torchvision is built for another torch: only the definitions of its networks are used, which are Python.
    Environment("torch", ("torch==2.13.0", "onnx==1.23.2", *_COMMON), alone=("torchvision==0.29.2",)),
    # The last release of MXNet needs an older NumPy, which exists for Python 3.11.
    Environment("mxnet", ("mxnet==1.9.1", "numpy==1.23.5", "pillow==13.0.0"), python=_PYTHON_3_11),
    # The peers of `benchmarks.serving`, each with all runtimes that may compute in it.
    Environment("fastapi", ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", *_COMPUTING)),
    Environment("mlserver", ("mlserver==1.7.1", *_COMPUTING)),
    Environment("bentoml", ("bentoml==1.4.39", *_COMPUTING)),
    Environment("triton", ("nvidia-pytriton==0.7.0", *_COMPUTING[:-1], "numpy==1.26.4"), python=_SYSTEM_PYTHON),
    Environment("ray", ("ray[serve]==2.60.0", *_COMPUTING)),
    Environment("tensorflow", ("tensorflow-cpu==2.21.0", "tf_keras==2.21.0", *_COMMON), making=True),
    # The tools that create the zoo (`benchmarks.models.zoo`); torchvision as above.
    Environment(
        "zoo",
        (
            *("torch==2.13.0", "onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2", "sympy==1.14.0"),
            *("transformers==5.23.0", "nncf==3.4.0", "onnx-neural-compressor==1.0", "torchao==0.18.0", "pyyaml"),
            # Imports of the packages below, which are installed without their dependencies.
            *("prettytable", "opencv-python-headless", "psutil", "py-cpuinfo", "matplotlib", "requests", "polars"),
        ),
        alone=("torchvision==0.29.2", "timm==1.0.31", "ultralytics==8.4.190", "ultralytics-thop==2.2.3"),
        making=True,
    ),
    # The tools that quantize, and the runtimes of their files (`benchmarks.quantization`).
    Environment(
        "quantization",
        (
            *("onnxruntime==1.31.1", "onnx==1.23.2", "sympy==1.14.0", "nncf==3.4.0", "openvino==2026.4.1"),
            *("torch==2.13.0", "torchao==0.18.0", "ai-edge-quantizer==0.10.0", "ai-edge-litert==2.3.0"),
            *("scikit-learn==1.9.1", *_COMMON),
        ),
        making=True,
    ),
    # The peers of `benchmarks.serving.text`.
    Environment("infinity", ("infinity-emb[server,optimum,torch]==0.0.78", "torch==2.13.0", "onnxruntime==1.32.0")),
    Environment(
        "fastembed", ("fastembed==0.9.1", "fastapi==0.165.0", "uvicorn[standard]==0.54.0", "onnxruntime==1.32.0")
    ),
    Environment(
        "textfastapi",
        (
            *("fastapi==0.165.0", "uvicorn[standard]==0.54.0", "onnxruntime==1.31.1", "tokenizers==0.23.3"),
            "numpy==2.4.6",
        ),
    ),
    # The references for tokens. Release 5 builds the tokenizers of some classes itself, and release 4 none.
    Environment("transformers", ("transformers==5.23.0", "numpy==2.4.6"), making=True),
    Environment("transformers-4", ("transformers==4.57.6", "numpy==2.4.6"), making=True),
    Environment("plot", ("matplotlib==3.11.2",), making=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {each.name: each for each in ENVIRONMENTS}
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {', '.join(known)}")
    parser.add_argument("--making", action="store_true")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - known.keys():
        parser.error(f"there is no environment {', '.join(sorted(unknown))}")
    home, failed = default_home(), []
    for environment in ENVIRONMENTS:
        if environment.name in arguments.names if arguments.names else arguments.making or not environment.making:
            try:
                install(home, environment)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{environment.name}: {error}", flush=True)
                failed.append(environment.name)
    if failed:
        sys.exit(f"these could not be created: {', '.join(failed)}")


def install(home: Home, environment: Environment) -> None:
    """Installs an environment. Raises subprocess.CalledProcessError if a package is not available, OSError if the
    interpreter is missing.
    """
    folder = home.environment(environment.name)
    stamp, pins = folder / _STAMP, "\n".join([*environment.packages, *environment.alone])
    if stamp.exists() and stamp.read_text() == pins:
        return
    print(f"{environment.name}: {', '.join(environment.packages)} ...", flush=True)
    if not (folder / "bin" / "python").exists():
        subprocess.run([environment.python, "-m", "venv", folder], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *environment.packages], check=True)
    if environment.alone:
        subprocess.run([*pip, "--no-deps", *environment.alone], check=True)
    stamp.write_text(pins)


if __name__ == "__main__":
    main()
