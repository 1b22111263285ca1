"""Conversions of the delegate's nodes. Each file contains the rules of one family.

XNNPACK's images are `[N, H, W, C]`, as those of the QNN dialect. Operators of real values are converted by the rules of
ONNX's operators, which are the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

from service.compiler.importers.executorch.node import Node
from service.compiler.importers.executorch.operators import convolution, dense, elementwise, images, movement
from service.compiler.importers.executorch.values import Value

RULES: dict[str, Callable[[Node], Value]] = {
    **convolution.RULES,
    **dense.RULES,
    **elementwise.RULES,
    **images.RULES,
    **movement.RULES,
}
