"""Conversions of PyTorch's operators to the QNN dialect. Each file contains the rules of one family of operators.

A rule is a function of the node and the operator's arguments. The arguments have the names, order and defaults of the
operator's schema (aten/src/ATen/native/native_functions.yaml, and `TORCH_LIBRARY(quantized, m)`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.compiler.importers.torch.operators import (
    activations,
    casts,
    comparing,
    computed_scales,
    constants,
    dynamic,
    elementwise,
    embedding,
    functions,
    fused,
    joining,
    layers,
    movement,
    normalizing,
    packed_layers,
    pooling,
    real,
    real_convolutions,
    recurrent,
    reducing,
    resizing,
    selecting,
    windows,
)

Rule = Callable[..., Any]

_FAMILIES = (
    casts,
    computed_scales,
    constants,
    dynamic,
    elementwise,
    embedding,
    functions,
    fused,
    joining,
    movement,
    normalizing,
    packed_layers,
    pooling,
    recurrent,
    resizing,
    selecting,
    windows,
)
RULES: dict[str, Rule] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()} | layers.ANY
# These rules take precedence if none of an operator's operands is quantized.
REAL_RULES: dict[str, Rule] = {
    **real.RULES,
    **layers.RULES,
    **real_convolutions.RULES,
    **activations.RULES,
    **comparing.RULES,
    **reducing.RULES,
}
# These rules take precedence if all operands are known while importing.
FOLDED_RULES: dict[str, Rule] = constants.FOLDED
