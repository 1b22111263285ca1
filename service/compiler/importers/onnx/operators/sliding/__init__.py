"""Sliding windows that are not those of an undilated pooling or convolution of images: volumes, dilated poolings,
maxima with their indices, norms, and the operators that undo them.
"""

from __future__ import annotations

from service.compiler.importers.onnx.operators.sliding import deformed, norms, unpooling

SLIDING = {**deformed.DEFORMED, **norms.NORMS, **unpooling.UNPOOLING}
