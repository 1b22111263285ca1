"""Ranges that are computed at run time: parameters are computed once, and weights must be symmetric."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from service.compiler.importers.builder.dynamic import Ranges
from service.compiler.importers.builder.node import Node
from service.compiler.qnn import graph
from service.compiler.qnn.ops.dynamic import DENSE, SCALE
from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported


def test_parameters_are_computed_once() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([2, 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            ranges = Ranges(Node(builder, "Dense #0", "y", "Dense"), x, [1], DENSE)
            assert ranges.parameter(SCALE).same_as(ranges.parameter(SCALE))
            stored = ranges.quantized()
            with pytest.raises(Unsupported, match="whose zero point is not 0"):
                ranges.scaled(stored, np.ones((4, 3), np.int8), QuantizedType("int8", (1.0,), (3,)), None)
            output = builder.emit_output(stored)
        builder.emit_func_output(output)
    calls = [value.op.name for _, value in graph.bindings(builder.get()["main"]) if isinstance(value, relax.Call)]
    assert calls.count("relax.qnn.dynamic_parameter") + calls.count("qnn.dynamic_parameter") == 3
