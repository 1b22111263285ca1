"""Whole networks that are not quantized, compared with ONNX Runtime."""

from __future__ import annotations

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support import evidence
from tests.support.float_networks import pictures, residual_network
from tests.support.onnx_reference import Reference

# ONNX Runtime adds some hundred float32 values in another order than Octet, which changes a probability by a few units
# in the last place.
ROUNDING = 2e-6


def test_a_float_network_is_that_of_onnx_runtime_within_rounding() -> None:
    model = residual_network()
    imported, reference = import_model(model), Reference(model, optimized=True)
    for picture in pictures(4):
        ours = oracle.run(imported.module, get_mode(ONNXRUNTIME), [picture[None]])
        evidence.compare(imported, ONNXRUNTIME, [ours], [reference([picture[None]])], ROUNDING)
