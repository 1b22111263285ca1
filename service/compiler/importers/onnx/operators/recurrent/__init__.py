"""Recurrent layers: LSTM, GRU and RNN, unrolled into their steps."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.recurrent import layers, quantized

RECURRENT = {**layers.RECURRENT, **quantized.QUANTIZED}

__all__ = ["RECURRENT"]
