"""Sums of stored tensors are computed as OpenVINO's transformations and its CPU plugin compute them."""

from __future__ import annotations

from collections import Counter

from service.compiler.importers.auto import import_model
from service.compiler.qnn import graph
from tests.support.openvino_models import packed


def operators_of(name: str) -> Counter[str]:
    function = graph.main_of(import_model(packed(name)).module)
    return Counter(str(value.op.name) for _, value in graph.bindings(function) if hasattr(value, "op"))


def test_a_convolution_before_a_sum_clamps_instead_of_rounding() -> None:
    """The FakeQuantize between the convolution and the sum becomes a maximum and a minimum; its stored values are not
    read."""
    found = operators_of("residual_mixed")
    assert found["relax.minimum"] == found["relax.maximum"] == 1


def test_a_product_before_a_sum_is_rounded() -> None:
    found = operators_of("attention_mixed")
    assert found["relax.maximum"] == 0
