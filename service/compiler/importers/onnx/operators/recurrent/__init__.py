"""Recurrent layers: LSTM and GRU, unrolled into their steps."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.recurrent.layers import RECURRENT

__all__ = ["RECURRENT"]
