"""ExecuTorch: its XNNPACK delegate, and its portable kernels."""

from __future__ import annotations

from service.compiler.qnn.numerics.mode import Mode
from service.compiler.qnn.numerics.modes.litert import DELEGATE
from service.core.builds.numerics import EXECUTORCH

# The delegate has the micro-kernels that LiteRT's default delegate has.
PORTABLE = Mode(EXECUTORCH, "ExecuTorch 1.5.1, XNNPACK delegate and portable kernels", DELEGATE.formulas)
