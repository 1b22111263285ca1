"""Numerics modes: each is a table from operator to formula.

A mode is named after one reference runtime. LiteRT's own kernels disagree with each other: its reference kernels round
twice in fixed point, and XNNPACK rounds once in float. Therefore every build, report and claim of exactness names its
mode.

`formula` is the interface of a formula, `mode` is the interface of a mode, and `modes` contains the tables. `scaling`,
`sums` and `functions` contain formulas that modes share, and `litert`, `torch` and `onnxruntime` contain the formulas
of one framework each.
"""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.modes.executorch import PORTABLE
from service.compiler.qnn.numerics.modes.litert import DELEGATE, REFERENCE
from service.compiler.qnn.numerics.modes.mxnet import ONEDNN
from service.compiler.qnn.numerics.modes.onnxruntime import CPU
from service.compiler.qnn.numerics.modes.openvino import CPU_PLUGIN
from service.compiler.qnn.numerics.modes.torch import ENGINE_FBGEMM, ENGINE_ONEDNN, ENGINE_QNNPACK, ENGINE_X86, EXPORTED
from service.core.builds.numerics import parse_mode

__all__ = ["Mode", "get_mode"]

_MODES = {
    mode.name: mode
    for mode in (
        REFERENCE,
        DELEGATE,
        CPU,
        ENGINE_FBGEMM,
        ENGINE_ONEDNN,
        ENGINE_X86,
        ENGINE_QNNPACK,
        EXPORTED,
        ONEDNN,
        CPU_PLUGIN,
        PORTABLE,
    )
}


def get_mode(name: str) -> Mode:
    """Returns the mode called `name`.

    Raises:
        Unsupported: no mode has this name.
    """
    return _MODES[parse_mode(name)]
