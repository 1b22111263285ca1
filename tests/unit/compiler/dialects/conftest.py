"""Forgets the dialects of a test when it ends: other tests of this process compile without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from service.compiler.dialects.dialect import DIALECTS, FORMATS
from service.compiler.importers.auto import IMPORTERS
from service.compiler.importers.detect import _ADDED as FILES
from service.compiler.importers.onnx.operators import RULES as ONNX
from service.compiler.importers.tflite.operators import RULES as TFLITE
from service.compiler.importers.torch.operators import REAL_RULES
from service.compiler.importers.torch.operators import RULES as TORCH
from service.compiler.lowering.passes import _ADDED as PASSES
from service.compiler.qnn.patterns import PATTERNS, SIMULATED
from service.core.builds.numerics import DEFAULT_MODE, MODES_OF

_REGISTRIES: tuple[dict[Any, Any], ...] = (
    DIALECTS, FORMATS, IMPORTERS, FILES, ONNX, TFLITE, REAL_RULES, TORCH, PASSES, PATTERNS, SIMULATED, DEFAULT_MODE,
    MODES_OF,
)  # fmt: skip


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    before = [dict(each) for each in _REGISTRIES]
    yield
    for registry, content in zip(_REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(content)
