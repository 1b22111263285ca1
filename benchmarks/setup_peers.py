"""Makes the environments that the peers run in, outside the checkout, from pinned versions:

    python -m benchmarks.setup_peers            # the peers
    python -m benchmarks.setup_peers --making   # and what makes models and plots

For the contest, LiteRT is in the development environment already. An environment that is as its pins say is left alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.places import Home, default_home

_STAMP = "octet-bench-pins.txt"


@dataclass(frozen=True)
class Environment:
    """Packages of an environment.

    Attributes:
        alone: those installed without what they depend on.
        making: whether it is only for making models and plots.
        python: the interpreter that it is made with.
    """

    name: str
    packages: Sequence[str]
    alone: Sequence[str] = ()
    making: bool = False
    python: str = sys.executable


# numpy and Pillow are pinned where our own code uses them; the rest is what pip finds for the frameworks.
_COMMON = ("numpy==2.4.6", "pillow==13.0.0")
_SYSTEM_PYTHON = "/usr/bin/python3"  # of a distribution, whose libpython is shared: Triton loads it
_COMPUTING = ("onnxruntime==1.31.1", "openvino==2026.4.1", "ai-edge-litert==2.3.0", "numpy==2.4.6")
ENVIRONMENTS = (
    Environment("onnxruntime", ("onnxruntime==1.31.1", "onnx==1.23.2", "sympy==1.14.0", *_COMMON)),
    Environment("openvino", ("openvino==2026.4.1", *_COMMON)),
    # torchvision is built for another torch: only its networks' definitions are used, which are Python.
    Environment("torch", ("torch==2.13.0", "onnx==1.23.2", *_COMMON), alone=("torchvision==0.29.2",)),
    # What serves beside Octet (`benchmarks.serving`), each with all that may compute behind it.
    Environment("fastapi", ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", *_COMPUTING)),
    Environment("mlserver", ("mlserver==1.7.1", *_COMPUTING)),
    Environment("bentoml", ("bentoml==1.4.39", *_COMPUTING)),
    Environment("triton", ("nvidia-pytriton==0.7.0", *_COMPUTING[:-1], "numpy==1.26.4"), python=_SYSTEM_PYTHON),
    Environment("ray", ("ray[serve]==2.60.0", *_COMPUTING)),
    Environment("tensorflow", ("tensorflow-cpu==2.21.0", "tf_keras==2.21.0", *_COMMON), making=True),
    # What makes the zoo (`benchmarks.models.zoo`); torchvision as above.
    Environment(
        "zoo",
        (
            *("torch==2.13.0", "onnx==1.23.2", "onnxruntime==1.31.1", "onnxscript==0.7.2", "sympy==1.14.0"),
            *("transformers==5.23.0", "nncf==3.4.0", "onnx-neural-compressor==1.0", "torchao==0.18.0", "pyyaml"),
            # What the packages below import, which are installed without what they ask for.
            *("prettytable", "opencv-python-headless", "psutil", "py-cpuinfo", "matplotlib", "requests", "polars"),
        ),
        alone=("torchvision==0.29.2", "timm==1.0.31", "ultralytics==8.4.190", "ultralytics-thop==2.2.3"),
        making=True,
    ),
    # The tools that quantize, and what runs their files (`benchmarks.quantization`).
    Environment(
        "quantization",
        (
            *("onnxruntime==1.31.1", "onnx==1.23.2", "sympy==1.14.0", "nncf==3.4.0", "openvino==2026.4.1"),
            *("torch==2.13.0", "torchao==0.18.0", "ai-edge-quantizer==0.10.0", "ai-edge-litert==2.3.0"),
            *("scikit-learn==1.9.1", *_COMMON),
        ),
        making=True,
    ),
    Environment("plot", ("matplotlib==3.11.2",), making=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--making", action="store_true")
    arguments = parser.parse_args()
    home, failed = default_home(), []
    for environment in ENVIRONMENTS:
        if arguments.making or not environment.making:
            try:
                install(home, environment)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{environment.name}: {error}", flush=True)
                failed.append(environment.name)
    if failed:
        sys.exit(f"these could not be made: {', '.join(failed)}")


def install(home: Home, environment: Environment) -> None:
    """Raises subprocess.CalledProcessError if a package cannot be had, OSError if there is no such interpreter."""
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
