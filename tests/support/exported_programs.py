"""Imports and evaluates exported programs that tests write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from service.compiler.importers.torch.exported import import_exported
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import PT2E
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array
from tests.support.exported import dequantize, document, node, program, quantize, tensor

RELU = "torch.ops.aten.relu.default"


STEPS = [
    quantize("x", "q"),
    dequantize("q", "r"),
    node(RELU, "s", tensor("r")),
    quantize("s", "t"),
    dequantize("t", "y"),
]


def result(nodes: list[dict[str, Any]], x: Array, **changes: Any) -> Array:
    model = import_exported(program(document(nodes, shape=x.shape, **changes)))
    return oracle.run_all(model.module, get_mode(PT2E), [[x]])[0][0]


def refused(whole: Any, records: Mapping[str, bytes | str] | None = None) -> OctetError:
    with pytest.raises((MalformedModel, Unsupported)) as caught:
        import_exported(program(whole, records))
    return caught.value
