"""Documented deviations: for each mode, the operators whose formula differs from what the mode's runtime computes.

A build may differ from its reference only by the deviations listed here (`core.verification.agreement.decide`). An
entry needs the reason why Octet does not compute the same, and a bound in steps of the operator's output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.compiler.qnn.expressions.halves import HALVES
from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.torch.saturation import saturating_layers
from service.core.builds.numerics import (
    EXECUTORCH,
    FBGEMM,
    MODES,
    ONEDNN,
    ONNXRUNTIME,
    OPENVINO,
    PT2E,
    QNNPACK,
    TORCH_X86,
)
from service.core.verification.agreement import Deviation


@dataclass(frozen=True)
class Documented:
    """An entry of the table.

    Attributes:
        layers: counts the operators of a model that the deviation concerns.
    """

    deviation: Deviation
    layers: Callable[[tvm.IRModule, Mode], int]


_SATURATION = Documented(
    Deviation(
        "conv2d",
        "FBGEMM's depthwise kernel saturates sums of two products at 16 bits beyond 7-bit activations; Octet does not",
        bound_steps=None,
    ),
    saturating_layers,
)


def _in_blocks(module: tvm.IRModule, _mode: Mode) -> int:
    """Returns the number of products whose real operands are quantized in blocks (`onnx.int8_activations`). Their
    stored values are scaled again as soon as they are rounded.
    """
    rounded: set[relax.Var] = set()
    count = 0
    for var, value, _ in graph.operations(graph.main_of(module)):
        name = graph.name_of(value)
        count += name == "multiply" and any(each in rounded for each in graph.variables(value))
        if name == "round":
            rounded.add(var)
    return count


_WEIGHT_ONLY = Documented(
    Deviation(
        "real_matmul",
        "activations are quantized to 8 bits in blocks: real values are computed to within a few units in the last "
        "place, and may round to a neighbouring step",
        bound_steps=1,
        bound_relative=1e-2,
    ),
    _in_blocks,
)

_CAST = "relax.astype"
# Operators that copy or select real values, or round each of them correctly. Every runtime computes the same results.
_EXACT = frozenset(
    f"relax.{name}"
    for name in (
        *("abs", "broadcast_to", "concat", "expand_dims", "flatten", "maximum", "max", "minimum", "min", "negative"),
        *("nn.pad", "nn.relu", "permute_dims", "qnn.dequantize", "reshape", "split", "squeeze", "strided_slice"),
        *("take", "tile", "where", "astype", "clip", "flip", "repeat"),
    )
)


def _quantized_again(operator: str) -> Callable[[tvm.IRModule, Mode], int]:
    """Returns a function that counts the operators `operator` that quantize computed real values. Operators that
    quantize model inputs do not count.
    """

    def layers(module: tvm.IRModule, _mode: Mode) -> int:
        computed: set[relax.Var] = set()
        count = 0
        for var, value, operation in graph.operations(graph.main_of(module)):
            reads_computed = any(each in computed for each in graph.variables(value))
            if operation is not None and operation.name == f"qnn.{operator}":
                count += reads_computed
                continue
            name = str(getattr(getattr(value, "op", None), "name", "")) if isinstance(value, relax.Call) else ""
            is_computed = name not in ("", *_EXACT) and str(getattr(var.ty, "dtype", "")).startswith("float")
            if is_computed or (reads_computed and name in ("", *_EXACT)):
                computed.add(var)
        return count

    return layers


def _rounded_halves(module: tvm.IRModule, _mode: Mode) -> int:
    """Counts the values that are rounded to float16 or bfloat16."""
    calls = (value for _, value, operation in graph.operations(graph.main_of(module)) if operation is None)
    names = (str(value.ty.dtype) for value in calls if getattr(getattr(value, "op", None), "name", "") == _CAST)
    return sum(dtype in HALVES for dtype in names)


# One step of float16 is up to 2**-10 of a value. Later layers carry a value that rounds to the neighbouring step on, as
# they carry every difference: this bound is that of four such steps.
_ROUNDED_HALVES = Documented(
    Deviation(
        "astype",
        "real values are computed to within a few units in the last place, and may round to the neighbouring value of "
        "16 bits; ONNX Runtime's optimizer can also move the casts between which it computes in float32",
        bound_steps=1,
        bound_relative=2.0**-8,
    ),
    _rounded_halves,
)

# Two runtimes may compute a real value to within a few units in the last place, and then round it to neighbouring
# steps. A real output of the model then changes by up to one step. A step of 8 bits is 1 / 255 of the range, and a step
# of the 7 bits to which FBGEMM quantizes at run time is 1 / 127 of it.
_STEP_OF_8_BITS, _STEP_OF_7_BITS = 5e-3, 1e-2


def _rounded_reals(operator: str, bound_relative: float = _STEP_OF_8_BITS) -> Documented:
    reason = "real values are computed to within a few units in the last place, and may round to a neighbouring step"
    deviation = Deviation(operator, reason, bound_steps=1, bound_relative=bound_relative)
    return Documented(deviation, _quantized_again(operator))


_ROUNDED_REALS = _rounded_reals("quantize"), _rounded_reals("dynamic_quantize")
_ROUNDED_BY_FBGEMM = _rounded_reals("quantize"), _rounded_reals("dynamic_quantize", _STEP_OF_7_BITS)


def _occurrences(operator: str) -> Callable[[tvm.IRModule, Mode], int]:
    def layers(module: tvm.IRModule, _mode: Mode) -> int:
        found = (operation for _, _, operation in graph.operations(graph.main_of(module)))
        return sum(operation is not None and operation.name == f"qnn.{operator}" for operation in found)

    return layers


# The exact sum and PyTorch's sum differ by float32 rounding, so a mean is at most one step off.
_ATEN_MEAN = Documented(
    Deviation(
        "mean",
        "PyTorch adds floats in an order of its own; a mean halfway between two steps may fall the other way",
        bound_steps=1,
        bound_relative=5e-3,
    ),
    _occurrences("mean"),
)
# The result of one layer is at most one step off, and later layers propagate the difference. For torchvision's networks
# with random weights, the outputs of PyTorch 2.13 were up to two steps off (docs/how-to/pytorch.md).
_REAL_SUMS = tuple(
    Documented(
        Deviation(
            operator,
            "PyTorch adds products of float32 in an order of its own, Octet adds integers; a sum near the middle of "
            "two steps may fall the other way, and later layers carry that on",
            bound_steps=2,
            bound_relative=2e-2,
        ),
        _occurrences(operator),
    )
    for operator in ("conv2d", "conv2d_transpose", "dense", "matmul", "mean")
)

# OpenVINO's transformations move scales through sums and into ranges, so that real values between integer layers are
# rounded in another order. The result of one FakeQuantize is at most one step off, and later layers propagate it.
_MOVED_SCALES = Documented(
    Deviation(
        "quantize",
        "OpenVINO moves scales through sums and into ranges, and rounds real values in another order; a value near the "
        "middle of two steps may fall the other way, and later layers carry that on",
        bound_steps=2,
        bound_relative=2e-2,
    ),
    _quantized_again("quantize"),
)

# Numerics mode -> the known deviations of its formulas from its runtime.
DEVIATIONS: Mapping[str, tuple[Documented, ...]] = {
    **dict.fromkeys(MODES, _ROUNDED_REALS),
    **dict.fromkeys((FBGEMM, TORCH_X86), (_SATURATION, _ATEN_MEAN, *_ROUNDED_BY_FBGEMM)),
    **dict.fromkeys((ONEDNN, QNNPACK), (_ATEN_MEAN, *_ROUNDED_REALS)),
    PT2E: (*_REAL_SUMS, *_ROUNDED_REALS),
    ONNXRUNTIME: (_WEIGHT_ONLY, _ROUNDED_HALVES, *_ROUNDED_REALS),
    OPENVINO: (_MOVED_SCALES,),
    EXECUTORCH: (*_REAL_SUMS, *_ROUNDED_REALS),
}


def deviations_of(module: tvm.IRModule, mode: Mode) -> list[Deviation]:
    """Returns the documented deviations that concern `module`, each with its number of layers."""
    counted = ((each.deviation, each.layers(module, mode)) for each in DEVIATIONS.get(mode.name, ()))
    return [deviation.of_layers(layers) for deviation, layers in counted if layers]
