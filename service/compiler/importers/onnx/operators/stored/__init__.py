"""Operators of stored values (com.microsoft) that are composed of others."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.stored import gemm

STORED = {**gemm.GEMM}
