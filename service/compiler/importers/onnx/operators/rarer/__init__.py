"""Operators that few networks have."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.rarer import bits, filling, functions, losses, running

RARER = {**bits.BITS, **filling.FILLING, **functions.FUNCTIONS, **losses.LOSSES, **running.RUNNING}
