"""Inputs and outputs of types that clients cannot send: bfloat16 and the small real types (float8).

Clients send and receive these as float32, which represents all of their values. The build rounds what it receives.
"""

from __future__ import annotations

from dataclasses import replace

from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.file.branches import renamed
from service.compiler.importers.onnx.file.tensors import SMALL_REALS
from service.compiler.importers.onnx.half.types import BFLOAT16, NUMBERS
from service.compiler.importers.onnx.model import End, Model
from service.compiler.importers.qdq import Operator

_FLOAT = "float32"
# LLVM has no conversions of float4, so that such an end is refused
_WIDENED = (BFLOAT16, *(dtype for dtype in SMALL_REALS if dtype.startswith("float8")))


def with_wide_ends(model: Model) -> tuple[Model, tuple[str, ...]]:
    """Returns `model` with float32 for each input and output of such a type, and Casts from or to the type that the
    file declares. Returns a notice for each of them.
    """
    ends = {end.name: end.dtype for end in (*model.inputs, *model.outputs) if end.dtype in _WIDENED}
    if not ends:
        return model, ()
    used = {name for operator in model.operators for name in (*operator.inputs, *operator.outputs)}
    used |= {*model.constants, *(end.name for end in (*model.inputs, *model.outputs))}
    inner: dict[str, str] = {}
    for name, dtype in ends.items():
        inner[name] = f"{name}/{dtype}"
        while inner[name] in used:
            inner[name] += "'"
        used.add(inner[name])
    given = {end.name for end in model.inputs}
    before = [_cast(name, inner[name], dtype) for name, dtype in ends.items() if name in given]
    after = [_cast(inner[name], name, _FLOAT) for name in ends if name not in given]
    constants = {
        inner.get(name, name): replace(each, name=inner.get(name, name)) for name, each in model.constants.items()
    }
    inputs, outputs = (tuple(map(_widened, group)) for group in (model.inputs, model.outputs))
    operators = (*before, *renamed(model.operators, inner), *after)
    notices = [
        f"{'the input' if name in given else 'the output'} {shortened(name)} is {dtype} in the file, and float32 here"
        for name, dtype in ends.items()
    ]
    return replace(model, operators=operators, constants=constants, inputs=inputs, outputs=outputs), tuple(notices)


def _widened(end: End) -> End:
    return replace(end, dtype=_FLOAT) if end.dtype in _WIDENED else end


def _cast(source: str, output: str, dtype: str) -> Operator:
    return Operator(0, "Cast", (source,), (output,), {"to": NUMBERS[dtype]})
