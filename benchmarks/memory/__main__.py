"""Measures a model's memory: weights and activations compared with float32, and the processes that run it.

    python -m benchmarks.memory MODEL…            # prints a table

Weights and activations are counted as in Jain et al. 2020 (Figure 6). Octet's are the constants layer (weights with
bias, scales and data repeated for tiles) and the arena. Float32's are four bytes for each weight and bias, and four for
each element of an activation at the moment when most of them are in use, without any halo or copy: the minimum for any
float32 runtime.
A process is `octet run` on a tensor, and the same call of LiteRT in Python; its figure is the peak resident set.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.tables import print_table

if TYPE_CHECKING:
    from service.core.artifacts.artifact import ArtifactConfig

_OCTET = [sys.executable, "-m", "service.cli"]
_LITERT = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
interpreter = Interpreter(sys.argv[1], num_threads=1)
interpreter.allocate_tensors()
for detail in interpreter.get_input_details():
    interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
interpreter.invoke()
"""
_LAUNCH = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@dataclass(frozen=True)
class Footprint:
    """Memory of a model, in bytes.

    Attributes:
        weights, arena: Octet's artifact.
        float_weights, float_activations: the same model in float32.
    """

    model: str
    weights: int
    arena: int
    float_weights: int
    float_activations: int
    octet_run: int
    litert: int

    @property
    def saved(self) -> float:
        return 1 - (self.weights + self.arena) / (self.float_weights + self.float_activations)

    def row(self) -> list[str]:
        sizes = (self.weights, self.arena, self.float_weights, self.float_activations, self.octet_run, self.litert)
        cells = [f"{size / 1e6:.1f}" if size >= 1e6 else f"{size / 1e6:.3f}" for size in sizes]
        return [self.model, *cells[:4], f"{self.saved:.0%}", *cells[4:]]


COLUMNS = ("model", "weights", "activations", "weights, float32", "activations, float32", "smaller by")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    print("Megabytes; the last two are the peak resident set of a process.\n")
    print_table([*COLUMNS, "`octet run`", "LiteRT"], (measured(model).row() for model in parser.parse_args().models))


def measured(model: Path) -> Footprint:
    """Compiles `model` for this machine and runs it."""
    with tempfile.TemporaryDirectory(prefix="octet-memory-") as scratch:
        folder = Path(scratch, "artifact")
        config = compiled(model, folder)
        inputs = []
        for index, spec in enumerate(config.signature.inputs):
            inputs.append(str(Path(scratch, f"{index}.npy")))
            np.save(inputs[-1], np.zeros(spec.shape, spec.dtype))
        return Footprint(
            model.stem,
            config.plan.constant_bytes,
            config.plan.arena_bytes,
            *in_float32(model),
            _peak_bytes([*_OCTET, "run", str(folder), *inputs, "--threads", "1"]),
            _peak_bytes([sys.executable, "-c", _LITERT, str(model)]),
        )


def compiled(model: Path, folder: Path, *options: str) -> ArtifactConfig:
    """Compiles `model` into `folder` with `octet compile`; LiteRT checks the build. Returns the config."""
    from service.cache import OciLayout
    from service.core.artifacts.artifact import ArtifactConfig
    from service.core.digest import parse_digest

    digest = parse_digest(compile_model(model, folder, "--numerics", "xnnpack", *options))
    layout = OciLayout.open(folder)
    return ArtifactConfig.from_json(json.loads(layout.blobs.read(layout.manifest(digest).config.digest)))


def in_float32(model: Path) -> tuple[int, int]:
    """Returns the bytes of the weights, and of the activations at the moment when most of them are in use, if every
    element took four bytes.
    """
    from service.compiler.importers.auto import import_model
    from service.compiler.qnn import graph
    from service.compiler.qnn.operation import value_of

    function = graph.main_of(import_model(model.read_bytes(), at=lambda *_args, **_names: None).module)
    bindings = [(var, value) for var, value in graph.bindings(function)]
    weights, last = 0, {}
    for step, (_, value) in enumerate(bindings):
        for arg in getattr(value, "args", [value]):
            constant = value_of(arg)
            weights += 0 if constant is None else constant.size
            for part in getattr(arg, "fields", [arg]):
                last[part] = step
    for result in graph.results_of(function):
        last[result] = len(bindings)
    live = {param: _elements(param) for param in function.params}
    worst = sum(live.values())
    for step, (var, value) in enumerate(bindings):
        # Operands and results of an operator are live at once; accumulators are in registers, and views take no memory.
        if str(getattr(var.ty, "dtype", "")) != "int32" and "reshape" not in str(getattr(value, "op", "")):
            live[var] = _elements(var)
        worst = max(worst, sum(live.values()))
        live = {name: size for name, size in live.items() if last.get(name, -1) > step}
    return 4 * weights, 4 * worst


def _elements(var: Any) -> int:
    return math.prod(int(dim) for dim in var.ty.shape)


def _peak_bytes(command: Sequence[str]) -> int:
    """Returns the peak resident set of `command`.

    A small process starts it, because a new program's peak counts from that of the process that forked it.
    """
    measured = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCH, *command], check=True, capture_output=True, text=True
    )
    return int(measured.stdout) * 1024


if __name__ == "__main__":
    main()
