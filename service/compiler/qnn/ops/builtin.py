"""The LiteRT kernels for the operations that LiteRT's default delegate does not compute.

The importer stores the kernel's name in an attribute of the operation. A numerics mode that has a formula for the
kernel uses this formula; every other mode ignores the attribute.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn.operation import BUILTIN, VECTORIZED
from service.compiler.qnn.ops.call import call_of, name_of, with_operands

REFERENCE = "reference"  # same results as the reference kernel
GEMM = "gemm"  # matrix multiplication by ruy, which rounds halves up
CHANNELS = "channels"  # rounds halves up in vectors of 8 channels, and away from zero in the remaining channels
# rounds halves up in vectors of 16 elements of the tensor, and away from zero in the remaining ones
ELEMENTS = "elements"
OPTIMIZED = "optimized"  # different results, which no mode reproduces
_POSITIONAL = (CHANNELS, ELEMENTS)


def with_builtin(call: relax.Call, kernel: str, elements: int) -> relax.Call:
    """Returns `call` with the name of its kernel. `elements` is the number of elements that the output has in the model
    file.
    """
    return with_operands(call, *call.args, **{BUILTIN: kernel, "elements": elements})


def without_builtin(call: relax.Call) -> relax.Call:
    """Returns `call` without the name of its kernel."""
    attrs = {key: value for key, value in call.attrs.items() if key not in (BUILTIN, "elements")}
    return call_of(name_of(call) or "", call.args, **attrs)


def vectorized(call: relax.Call) -> relax.Call:
    """Returns `call`, a `qnn.requantize`. If the call's kernel rounds by position, returns the call as
    `qnn.vector_requantize`, which no pass moves.
    """
    if name_of(call) != "requantize" or str(call.attrs[BUILTIN]) not in _POSITIONAL:
        return call
    attributes: tvm.ir.Attrs = call.attrs
    return call_of(VECTORIZED.removeprefix("qnn."), call.args, **dict(attributes.items()))
