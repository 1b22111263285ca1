"""Operators of audio front ends: windows, mel filters, and Fourier transforms."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.signals import fourier, windows

SIGNALS = {**fourier.FOURIER, **windows.WINDOWS}
