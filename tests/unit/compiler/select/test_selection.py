"""The report of select lists every operator once, in order, with its kernel or the reason why it has none.

It counts every product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

from service.compiler.kernels.libraries import library_for
from service.compiler.qnn import coverage, ops
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType, accumulator_type
from service.compiler.select.select import select
from service.compiler.select.selection import Selection
from service.core.target import parse_target
from tests.support.qnn_models import Emit, module_of

ACTIVATION = QuantizedType("int8", (0.1,), (0,))
WEIGHT = QuantizedType("int8", (0.01,), (0,))


@pytest.fixture(scope="module")
def module() -> Any:
    """Builds two convolutions with a negation between them, and a dense layer that accumulates in int64.

    No kernel computes the negation or such a dense layer.
    """

    def conv(emit: Emit, x: relax.Var, channels: int) -> relax.Var:
        weights = relax.const(np.ones((16, 3, 3, channels), np.int8))
        total = emit(ops.conv2d(x, weights, None, ACTIVATION, WEIGHT, padding=(1, 1, 1, 1)))
        return emit(ops.requantize(total, accumulator_type(ACTIVATION, WEIGHT, axis=3), ACTIVATION))

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = conv(emit, inputs[0], 3)
        middle = emit(relax.op.negative(first))
        last = conv(emit, middle, 16)
        flat = emit(relax.op.reshape(last, [1, 8 * 8 * 16]))
        weights = relax.const(np.ones((10, 8 * 8 * 16), np.int8))
        return emit(ops.dense(flat, weights, None, ACTIVATION, WEIGHT, accum_dtype="int64"))

    return module_of([((1, 8, 8, 3), "int8")], body)


def selection_for(module: Any, target: str) -> Selection:
    mode = get_mode("xnnpack")
    return select(module, library_for(parse_target(target), mode))


@pytest.fixture(scope="module")
def report(module: Any) -> dict[str, Any]:
    return selection_for(module, "x86-64-v3").report()


def test_layers_list_the_kernel_of_each_operator(report: dict[str, Any]) -> None:
    kinds = [(layer["operators"], layer["kernel"]) for layer in report["layers"]]
    around = [("pack", "pack"), ("unpack", "unpack")]
    conv = ("conv2d+requantize", "conv")
    assert [kind for kind in kinds if kind not in around] == [conv, conv]
    assert report["reorders"] == len([kind for kind in kinds if kind in around])


def test_operators_without_a_kernel_have_a_reason_and_a_position(report: dict[str, Any]) -> None:
    plain = {operator["operators"]: operator for operator in report["plain"]}
    assert list(plain) == ["negative", "dense"]
    assert plain["negative"]["reason"] == "no kernel computes this operator"
    before = [layer["kernel"] for layer in report["layers"][: plain["negative"]["place"]]]
    assert before.count("conv") == 1
    assert plain["dense"]["reason"] == "it accumulates in int64"
    assert plain["dense"]["place"] == len(report["layers"])


def test_no_product_is_lost(module: Any, report: dict[str, Any]) -> None:
    macs = [entry["macs"] for entry in (*report["layers"], *report["plain"])]
    assert sum(macs) == coverage.report(module)["macs"] == 8 * 8 * 16 * 9 * (3 + 16) + 10 * 1024
    assert report["families"]["conv"] == {"calls": 2, "macs": 8 * 8 * 16 * 9 * (3 + 16)}


def test_a_target_without_kernels_reports_none(module: Any) -> None:
    report = select(module, None).report()
    assert report["layers"] == report["plain"] == []


def test_edges_connect_the_layers_in_order(report: dict[str, Any]) -> None:
    """The layers of kernels have odd numbers. The negation is between them, and reads the first convolution."""
    layers, edges = report["layers"], report["edges"]
    assert edges == sorted(edges)
    assert all(source < reader for source, reader in edges)
    first = next(index for index, layer in enumerate(layers) if layer["kernel"] == "conv")
    negation = next(operator["place"] for operator in report["plain"] if operator["operators"] == "negative")
    assert {reader for source, reader in edges if source == 2 * negation}
    read = {source for source, reader in edges if reader == 2 * negation}
    assert read
    assert read <= {2 * index + 1 for index in range(first, negation)}
