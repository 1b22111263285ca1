"""Operators on images that read pixels at computed positions, or rearrange patches."""

from __future__ import annotations

from service.compiler.importers.onnx.operators.images import grid, suppression

IMAGES = {**grid.GRID, **suppression.SUPPRESSION}
