"""Conversions of PyTorch's operators to the QNN dialect: one file per family, each with the rules of its operators.

A rule is a function of the node and of the operator's arguments as its schema names them, in order and with their
defaults (aten/src/ATen/native/native_functions.yaml, and `TORCH_LIBRARY(quantized, m)`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.compiler.importers.torch.operators import (
    accumulating,
    casts,
    dynamic,
    elementwise,
    functions,
    fused,
    joining,
    layers,
    movement,
    pooling,
    real,
    resizing,
)

Rule = Callable[..., Any]

_FAMILIES = (accumulating, casts, dynamic, elementwise, functions, fused, joining, movement, pooling, resizing)
RULES: Mapping[str, Rule] = {name: rule for family in _FAMILIES for name, rule in family.RULES.items()} | layers.ANY
# Rules that apply instead if none of an operator's operands is quantized.
REAL_RULES: Mapping[str, Rule] = {**real.RULES, **layers.RULES}
