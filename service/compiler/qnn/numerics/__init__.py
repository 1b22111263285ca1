"""Numerics modes: each is a table from operator to formula.

A mode is named after one reference runtime. LiteRT's own kernels disagree with each other: its reference kernels round
twice in fixed point, and XNNPACK rounds once in float. Therefore every build, report and claim of exactness names its
mode.
"""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.modes import litert, mxnet, onnxruntime, torch
from service.core.numerics import parse_mode

__all__ = ["Mode", "get_mode"]

_MODES = {
    mode.name: mode
    for mode in (
        litert.REFERENCE,
        litert.DELEGATE,
        onnxruntime.CPU,
        torch.ENGINE_FBGEMM,
        torch.ENGINE_ONEDNN,
        torch.ENGINE_X86,
        torch.ENGINE_QNNPACK,
        torch.EXPORTED,
        mxnet.ONEDNN,
    )
}


def get_mode(name: str) -> Mode:
    """Returns the mode called `name`.

    Raises:
        Unsupported: no mode has this name.
    """
    return _MODES[parse_mode(name)]
