"""The outcomes of a case of ONNX's backend tests."""

from __future__ import annotations

EQUAL, CLOSE, DIFFERS, REFUSED, FAILED = "equal", "within tolerance", "differs", "refused", "failed"
AS_REFERENCE = "as ONNX Runtime"  # differs from the suite, as ONNX Runtime does
PASSES = (EQUAL, CLOSE, AS_REFERENCE)
