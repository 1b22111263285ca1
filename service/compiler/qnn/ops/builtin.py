"""Operations that LiteRT's default delegate does not take: the kernels of LiteRT itself that compute them.

An importer names such a kernel in an attribute of the operation. A numerics mode that has rows for the kernel computes
by them; every other mode ignores the attribute.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn.operation import BUILTIN, VECTORIZED
from service.compiler.qnn.ops.call import call_of, name_of, with_operands

REFERENCE = "reference"  # computes what the reference kernel computes
GEMM = "gemm"  # matrix multiplication by ruy, which rounds halves up
CHANNELS = "channels"  # rounds halves up in vectors of 8 channels, and away from zero in the channels that are left
ELEMENTS = "elements"  # rounds halves up in vectors of 16 elements of the tensor, and away from zero in the rest
OPTIMIZED = "optimized"  # computes values of its own, which no mode reproduces
_POSITIONAL = (CHANNELS, ELEMENTS)


def with_builtin(call: relax.Call, kernel: str, elements: int) -> relax.Call:
    """`call` with the name of its kernel; `elements` is the size of the file's output."""
    return with_operands(call, *call.args, **{BUILTIN: kernel, "elements": elements})


def without_builtin(call: relax.Call) -> relax.Call:
    """`call` without the name of its kernel."""
    attrs = {key: value for key, value in call.attrs.items() if key not in (BUILTIN, "elements")}
    return call_of(name_of(call) or "", call.args, **attrs)


def vectorized(call: relax.Call) -> relax.Call:
    """`call`, a `qnn.requantize`, as the operator that no pass moves, if its kernel rounds by position."""
    if name_of(call) != "requantize" or str(call.attrs[BUILTIN]) not in _POSITIONAL:
        return call
    attributes: tvm.ir.Attrs = call.attrs
    return call_of(VECTORIZED.removeprefix("qnn."), call.args, **dict(attributes.items()))
