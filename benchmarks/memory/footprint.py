"""Measures the cost of running models, besides the models, with only NumPy and Octet's own package installed.

    python -m benchmarks.memory.footprint    # MobileNetV2 in Python, keyword spotting in C: prints a table

Builds the wheel, installs it without its dependencies into a fresh environment, and compiles the models.
- size: the installed files of Octet's package, with their bytecode.
- import: the processor time of `import service.runtime` after NumPy; the minimum of several processes.
- in Python: the proportional set size of a process that has run the model, minus that of one that has only imported
  NumPy. Other processes that map the same libraries reduce both.
- in C: the peak resident set of `examples/predict.c`, including pages of the C library and the loader.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.home import CHECKOUT, SHARED
from benchmarks.harness.tables import table

_MODELS = SHARED / "models" / "tflite"
_STARTS = 15

_IMPORT = """
import time, numpy
begun = time.process_time()
import service.runtime
print(time.process_time() - begun)
"""
_PSS = """
import numpy, sys
def pss_kib():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
bare = pss_kib()
from service import runtime
model = runtime.load(sys.argv[1])
inputs = [numpy.zeros(spec.shape, spec.dtype) for spec in model.signature.inputs]
for _ in range(20):
    model.run(inputs)
print((pss_kib() - bare) * 1024)
"""
# This code is linked to the example: it writes the lines of its /proc/self/status when it ends.
_STATUS = """
#include <fcntl.h>
#include <unistd.h>
__attribute__((destructor)) static void report(void) {
  char text[4096];
  ssize_t got = read(open("/proc/self/status", O_RDONLY), text, sizeof text);
  if (got > 0) got = write(2, text, (size_t)got);
}
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with NumPy and Octet's own package only."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"))

    @property
    def package_bytes(self) -> int:
        """Returns the size of Octet's own files."""
        owned = [self.packages / "service", *self.packages.glob("octet_serve-*")]
        return sum(path.stat().st_size for each in owned for path in each.rglob("*") if path.is_file())

    def import_s(self, starts: int = _STARTS) -> float:
        return min(float(self.output(_IMPORT)) for _ in range(starts))

    def pss_bytes(self, artifact: Path) -> int:
        """Returns the additional memory of a process that has run the model, compared with a process that has only
        imported NumPy."""
        return int(self.output(_PSS, str(artifact)))

    def output(self, program: str, *arguments: str) -> str:
        command = [str(self.python), "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)  # not the checkout's package
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[2:])}\n{done.stderr}")
        return done.stdout


def make_environment(folder: Path, wheel: Path, base: str = sys.executable) -> Environment:
    """Creates the environment that the documentation recommends for a device."""
    environment = Environment(folder)
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    pip = [str(environment.python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "numpy"], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    return environment


def installed_bytes(environment: Environment) -> int:
    """Returns the size of all installed files except NumPy's, with their bytecode."""
    found = [path for path in environment.packages.iterdir() if not path.name.startswith(("numpy", "pip"))]
    return sum(path.stat().st_size for each in found for path in [each, *each.rglob("*")] if path.is_file())


def build_wheel(folder: Path) -> Path:
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(CHECKOUT)], check=True)
    return next(folder.glob("*.whl"))


def resident_peak_bytes(artifact: Path, content: bytes, folder: Path) -> int:
    """Returns the peak resident set of the example in C, which runs `artifact` once on `content`."""
    native, program, given = CHECKOUT / "service/native", folder / "predict", folder / "input"
    (folder / "status.c").write_text(_STATUS)
    sources = [str(CHECKOUT / "examples/predict.c"), str(folder / "status.c")]
    linked = [f"-I{native / 'runtime'}", "-o", str(program), f"-L{native}", "-loctet_runtime", f"-Wl,-rpath,{native}"]
    subprocess.run(["cc", "-O1", *sources, *linked], check=True)
    given.write_bytes(content)
    status = subprocess.run([program, artifact, given], check=True, capture_output=True, text=True).stderr
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--in-python", type=Path, default=_MODELS / "mobilenet_v2.int8.tflite")
    parser.add_argument("--in-c", type=Path, default=_MODELS / "kws_ref_model.tflite")
    parser.add_argument("--input-bytes", type=int, default=490, help="of the model in C")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octet-footprint-") as scratch:
        folder = Path(scratch)
        environment = make_environment(folder / "environment", build_wheel(folder))
        in_python, in_c = folder / "python.octet", folder / "c.octet"
        compile_model(arguments.in_python, in_python)
        compile_model(arguments.in_c, in_c)
        peak_bytes = resident_peak_bytes(in_c, bytes(arguments.input_bytes), folder)
        rows = [
            ["Octet's package, installed", f"{environment.package_bytes / 1e6:.1f} MB"],
            ["`import service.runtime`, after NumPy", f"{1e3 * environment.import_s():.0f} ms"],
            [f"{arguments.in_python.stem} in Python, over NumPy", f"{environment.pss_bytes(in_python) / 1e6:.1f} MB"],
            [f"{arguments.in_c.stem} in C", f"{peak_bytes / 1e6:.2f} MB"],
        ]
        print(table(["what", "takes"], rows))


if __name__ == "__main__":
    main()
