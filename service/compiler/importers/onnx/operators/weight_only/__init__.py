"""Operators on real values with stored weights (com.microsoft): MatMulNBits and GatherBlockQuantized."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.weight_only import gather, product

WEIGHT_ONLY = {**gather.GATHER, **product.PRODUCT}

__all__ = ["WEIGHT_ONLY"]
