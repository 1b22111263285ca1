"""Measures the share of the instructions' peak that float layers reach on one core, in float32 and in bfloat16.

    python -m benchmarks.float_share              # two minutes; prints a table
    python -m benchmarks.float_share --rounds 5

Each layer is compiled as a model of its own for this machine's best target, or for that with bfloat16, and takes turns
with the loops of the two instructions (`peak`). The fastest call of each counts. A layer's time includes the overhead
of a call, some microseconds, and the conversion of its operands. Shares refer to the peak that was measured in the same
run. If the CPU has no bfloat16, its columns are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from benchmarks.measure import Array, Timings, call_repeatedly, cpu_name, table, take_turns
from benchmarks.peak.instructions import available, named
from benchmarks.peak.loops import Loop, prepare_threads
from service.compiler.kernels.libraries import library_for
from service.compiler.kernels.objects import compile_program, program_of
from service.compiler.lowering import codegen, constants
from service.compiler.lowering.call_plan import call_plan
from service.compiler.lowering.link import link
from service.compiler.lowering.passes import PIPELINE, Context
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.targets import codegen_target
from service.core.artifact import ArtifactConfig
from service.core.buffers import aligned_empty
from service.core.numerics import ONNXRUNTIME
from service.core.signature import ModelSignature, TensorSpec, datatype_of
from service.core.target import detect_host, parse_target
from service.runtime import load_files

SECONDS = 0.25  # duration of a turn
WANTED = 0.75  # the required share of the peak
_TARGETS = {"float32": "host", "bfloat16": "x86-64-v4+vnni+bf16"}
_PEAKS = {"float32": ("vfmadd zmm", "vfmadd ymm"), "bfloat16": ("vdpbf16ps zmm",)}
_RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Layer:
    """One matrix product or convolution.

    Attributes:
        inputs: shapes of the inputs.
        weights: shape of the weights; None if both operands are computed.
        padding: of a convolution, on each side.
    """

    title: str
    macs: int
    inputs: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...] | None = None
    padding: int = 0

    def call(self, inputs: Sequence[relax.Var], dtype: str) -> relax.Call:
        if self.weights is None:
            return ops.real_matmul(inputs[0], inputs[1], operand_dtype=dtype)
        weights = relax.const(_RNG.standard_normal(self.weights).astype(np.float32))
        if len(self.weights) == 2:
            return ops.real_matmul(inputs[0], weights, operand_dtype=dtype)
        return ops.real_conv2d(inputs[0], weights, None, padding=(self.padding,) * 4, operand_dtype=dtype)


def _conv(size: int, channels: int, filters: int, kernel: int) -> Layer:
    title = f"conv {kernel}x{kernel}, {size}x{size}, {channels} to {filters}"
    macs, weights = size * size * filters * kernel * kernel * channels, (filters, kernel, kernel, channels)
    return Layer(title, macs, ((1, size, size, channels),), weights, kernel // 2)


def _dense(rows: int, depth: int, columns: int) -> Layer:
    title = f"dense, {rows} rows, {depth} to {columns}"
    return Layer(title, rows * depth * columns, ((rows, depth),), (depth, columns))


def _batch(count: int, rows: int, depth: int, columns: int) -> Layer:
    title = f"batch matmul, {count} of {rows}x{depth} by {depth}x{columns}"
    return Layer(title, count * rows * depth * columns, ((count, rows, depth), (count, depth, columns)))


# Layers of ResNet-50, of transformers of 768 channels, and of heads of 64.
LAYERS = (
    *(_conv(size, channels, channels, 3) for size, channels in ((56, 64), (28, 128), (14, 256), (7, 512))),
    *(_conv(*each, 1) for each in ((56, 64, 256), (56, 256, 64), (14, 256, 1024), (7, 2048, 512))),
    *(_dense(*each) for each in ((128, 768, 768), (128, 768, 3072), (512, 3072, 768), (1, 2048, 1000))),
    *(_batch(*each) for each in ((12, 128, 64, 128), (12, 384, 64, 384), (12, 384, 384, 64), (1, 512, 512, 512))),
)


@dataclass(frozen=True)
class _Called:
    """A function of this process that takes turns."""

    call: Callable[[], object]
    pids: Sequence[int] = ()

    def durations_s(self, seconds: float) -> list[float]:
        return call_repeatedly(self.call, seconds)


def compiled(layer: Layer, dtype: str, scratch: Path) -> Callable[[], object]:
    """Compiles the layer, and returns it as a call on one thread."""
    target, mode = parse_target(_TARGETS[dtype]), get_mode(ONNXRUNTIME)
    inputs = [relax.Var(f"x{at}", relax.TensorType(list(shape), "float32")) for at, shape in enumerate(layer.inputs)]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            output = builder.emit_output(layer.call(inputs, dtype))
        builder.emit_func_output(output)
    codegen_for = codegen_target(target)
    context = Context(mode, codegen_for, library_for(target, mode))
    module = PIPELINE.run(builder.get(), context)
    assert context.selection is not None
    objects = [scratch / "plain.o"]
    codegen.generate(module, codegen_for, objects[0])
    for symbol, kernel in sorted(context.selection.kernels.items()):
        objects.append(scratch / f"{symbol}.o")
        compile_program(program_of(kernel), symbol, codegen_for, objects[-1])
    library, layer_file = scratch / "library.so", scratch / "constants.bin"
    link(objects, library, target, allow_unsandboxed=True)
    slots = constants.write(context.constants, layer_file)
    shape = [int(dim) for dim in output.ty.shape.values]
    given = [aligned_empty(list(each), np.dtype(np.float32)) for each in layer.inputs]
    for array in given:
        array[...] = _RNG.standard_normal(array.shape)
    made = aligned_empty(shape, np.dtype(np.float32))
    signature = ModelSignature(_specs("x", given), _specs("y", [made]))
    config = ArtifactConfig(signature, target.name, ONNXRUNTIME, call_plan(module, slots, context.activations))
    model = load_files(config, library, layer_file, threads=1)
    return lambda: model.run(given)


def _specs(name: str, arrays: Sequence[Array]) -> tuple[TensorSpec, ...]:
    described = (f"{name}{at}" for at in range(len(arrays)))
    return tuple(
        TensorSpec(each, datatype_of("float32"), array.shape) for each, array in zip(described, arrays, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    prepare_threads(1)
    here = {instruction.name for instruction in available(detect_host().features)}
    peaks = {dtype: next((name for name in names if name in here), None) for dtype, names in _PEAKS.items()}
    loops = {dtype: Loop(named(name), 1) for dtype, name in peaks.items() if name is not None}
    contenders: dict[Any, _Called] = {dtype: _Called(loop.call) for dtype, loop in loops.items()}
    with tempfile.TemporaryDirectory() as folder:
        for layer in LAYERS:
            for dtype in loops:
                scratch = Path(folder, f"{len(contenders)}")
                scratch.mkdir()
                contenders[layer, dtype] = _Called(compiled(layer, dtype, scratch))
        timings = take_turns(contenders, rounds, SECONDS)
    print(report(timings, {dtype: loop.macs for dtype, loop in loops.items()}, peaks))


def report(timings: dict[Any, Timings], macs: dict[str, int], names: dict[str, str | None]) -> str:
    """Returns the peaks, a row for each layer, and a list of the layers below `WANTED` of the peak."""
    peaks = {dtype: count / _fastest_ms(timings[dtype]) / 1e6 for dtype, count in macs.items()}
    busy = sum(sum(each.other_cpus) for each in timings.values()) / sum(len(each.rounds) for each in timings.values())
    lines = [f"{cpu_name()}, one core; {busy:.2f} CPUs were busy with other work."]
    lines += [f"{names[dtype]}: {peak:.0f} GMAC/s" for dtype, peak in peaks.items()]
    rows, below = [], []
    for layer in LAYERS:
        cells, times = [layer.title], []
        for dtype, peak in peaks.items():
            taken_ms = _fastest_ms(timings[layer, dtype])
            share = layer.macs / taken_ms / 1e6 / peak
            times.append(taken_ms)
            cells += [f"{taken_ms:.3f}", f"{100 * share:.0f} %"]
            if share < WANTED:
                below.append(f"{layer.title}, {dtype}: {100 * share:.0f} %")
        rows.append([*cells, *([f"{times[0] / times[1]:.2f}"] if len(times) == 2 else [])])
    columns = [cell for dtype in peaks for cell in (f"{dtype} ms", "of the peak")]
    lines += ["", table(["layer", *columns, *(["faster by"] if len(peaks) == 2 else [])], rows), ""]
    lines += [f"Below {100 * WANTED:.0f} %: {'; '.join(below) or 'none'}."]
    return "\n".join(lines)


def _fastest_ms(timings: Timings) -> float:
    return 1e3 * min(duration for durations in timings.rounds for duration in durations)


if __name__ == "__main__":
    main()
