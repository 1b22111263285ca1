"""MXNet symbols are imported. Symbols that cannot be imported are refused, and the error names the operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.mxnet.package import pack
from service.core.builds.build import Stage
from service.core.errors import MalformedModel, NotQuantized, OctetError, Unsupported, UnsupportedOperator
from service.core.models.signature import TensorSpec
from tests.support.mxnet_models import Document, node_of, packed, params_of, symbol_of

CONV, DENSE = "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"


def test_signature() -> None:
    signature = import_model(packed("sg_inverted")).signature
    assert signature.inputs == (TensorSpec("data", "FP32", (2, 3, 20, 20)),)
    assert signature.outputs == (TensorSpec("flat_output", "FP32", (2, 10)),)


def test_shapes_may_be_given() -> None:
    for name in ("data", ""):
        signature = import_model(packed("sg_residual", without_shape), shapes={name: [3, 3, 24, 24]}).signature
        assert signature.inputs[0].shape == (3, 3, 24, 24)
    with pytest.raises(Unsupported, match="the model has no input 'dta'") as caught:
        import_model(packed("sg_residual"), shapes={"dta": [1]})
    assert caught.value.hint == "it has: data"


def test_facts() -> None:
    facts = facts_of(import_model(packed("sg_residual")))
    assert facts.format == "mxnet"
    assert facts.macs == 776_072
    assert facts.weights is not None
    assert facts.weights.granularity == ("per-axis",)
    assert facts.weights.symmetric


def test_operators_are_reported_before_they_are_converted() -> None:
    reported: list[tuple[str, str]] = []
    import_model(packed("contrib_chain"), at=lambda op, tensor: reported.append((op, tensor)))
    assert reported[:2] == [("_contrib_quantize_v2 quantize", "quantize"), ("_contrib_quantized_conv c1", "c1")]


def attribute(op: str, name: str, value: str | None) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        attributes = node_of(document, op).setdefault("attrs", {})
        attributes.pop(name, None)
        if value is not None:
            attributes[name] = value

    return edit


def inner(op: str, part: str, name: str, value: str) -> Callable[[Document], None]:
    def edit(document: Document) -> None:
        node_of(node_of(document, op)["subgraphs"][0], part).setdefault("attrs", {})[name] = value

    return edit


def renamed(op: str, other: str) -> Callable[[Document], None]:
    return lambda document: node_of(document, op).update(op=other)


def without_shape(document: Document) -> None:
    del document["nodes"][0]["attrs"]


def head(node: int, output: int) -> Callable[[Document], None]:
    return lambda document: document.update(heads=[[node, output, 0]])


@pytest.mark.parametrize(
    ("name", "edit", "what"),
    [
        ("sg_residual", without_shape, "the input data has no fixed shape"),
        ("sg_residual", attribute("null", "__shape__", "(0, 3, 24, 24)"), r"this one stores \[0, 3, 24, 24\]"),
        ("sg_residual", attribute("null", "__dtype__", "3"), "not float32"),
        ("sg_residual", attribute(CONV, "max_calib_range", None), "no calibrated range"),
        ("sg_residual", attribute("_contrib_quantize_v2", "min_calib_range", None), "no calibrated range"),
        ("sg_residual", attribute("_contrib_quantized_pooling", "pool_type", "sum"), "pool_type 'sum'"),
        ("sg_residual", attribute("_contrib_quantized_pooling", "layout", "NHWC"), "layout 'NHWC'; only NCHW"),
        ("sg_residual", inner(CONV, "Activation", "act_type", "mish"), "act_type 'mish'; only relu, sigmoid"),
        ("contrib_chain", attribute("_contrib_quantized_conv", "no_bias", "False"), "has a bias"),
        ("sg_residual", head(0, 0), "which is not a computed tensor"),
        ("sg_residual", head(7, 1), "which is not a computed tensor"),
    ],
)
def test_an_unsupported_operator_is_named(name: str, edit: Callable[[Document], None], what: str) -> None:
    with pytest.raises(Unsupported, match=what) as caught:
        import_model(packed(name, edit))
    assert caught.value.stage == Stage.IMPORT


@pytest.mark.parametrize(
    ("name", "edit", "what"),
    [
        ("sg_residual", attribute(CONV, "quantized", None), "has 8 inputs, not 6"),
        ("sg_residual", attribute(CONV, "with_sum", "true"), "has 8 inputs, not 11"),
        ("sg_residual", attribute(CONV, "max_calib_range", "nan"), "not a finite number"),
        ("sg_residual", attribute(CONV, "min_calib_range", "99"), "has the invalid range 99"),
        ("sg_residual", attribute(CONV, "with_bn", "maybe"), "not True or False"),
        ("sg_residual", attribute("_contrib_quantized_pooling", "kernel", "(0, 3)"), "not 1 or more"),
        ("sg_residual", inner(CONV, "Convolution", "kernel", "(5, 5)"), r"for a kernel of \[5, 5\]"),
        ("sg_residual", inner(CONV, "Convolution", "num_filter", "13"), "do not fit num_filter 13"),
        (
            "sg_residual",
            inner(CONV, "Convolution", "num_group", "5"),
            "12 filters, which cannot be divided into 5 groups",
        ),
        ("sg_residual", inner(CONV, "Convolution", "num_group", "2"), "do not form 2 groups"),
        ("sg_residual", inner(CONV, "Convolution", "no_bias", "False"), "normalizes 1 channels, but has 12 filters"),
        ("sg_residual", inner(DENSE, "FullyConnected", "num_hidden", "11"), "do not fit num_hidden 11"),
        ("sg_residual", lambda document: document.pop("heads"), "has no heads"),
        ("sg_residual", lambda document: document.update(heads=[]), "no outputs"),
        ("sg_residual", head(500, 0), "which no earlier node computes"),
        ("sg_residual", head(7, 9), "which has fewer"),
        (
            "sg_residual",
            lambda document: document["nodes"][1].update(inputs=[[1, 0, 0]]),
            "which no earlier node computes",
        ),
        ("sg_residual", lambda document: document["nodes"][1].update(inputs=[[0, True]]), "invalid reference"),
        ("sg_residual", lambda document: document["nodes"][1].update(attrs=[]), "are not strings"),
        ("sg_residual", lambda document: document["nodes"][1].update(op=3), "a node without op"),
        ("contrib_chain", attribute("_contrib_quantized_concat", "dim", "7"), "has axis 7, but its input has 4"),
    ],
)
def test_a_malformed_operator_is_named(name: str, edit: Callable[[Document], None], what: str) -> None:
    with pytest.raises(MalformedModel, match=what):
        import_model(packed(name, edit))


def test_all_unsupported_operators_are_listed() -> None:
    def edit(document: Document) -> None:
        renamed(DENSE, "Correlation")(document)
        renamed("_contrib_quantized_pooling", "_contrib_quantized_rnn")(document)

    with pytest.raises(UnsupportedOperator, match="2 of 11 operators cannot be compiled") as caught:
        import_model(packed("sg_residual", edit))
    assert "_contrib_quantized_rnn, Correlation" in caught.value.message
    assert "_contrib_quantized_rnn quantized_pool0" in caught.value.message


def test_the_message_for_a_float_model_says_to_quantize_it() -> None:
    node = {"op": "Correlation", "name": "conv", "inputs": [[0, 0, 0]]}
    document = {"nodes": [{"op": "null", "name": "data", "inputs": []}, node], "heads": [[1, 0, 0]]}
    with pytest.raises(NotQuantized, match=r"^this model is not quantized: ") as caught:
        import_model(pack(json.dumps(document).encode(), params_of("sg_residual")))
    assert "quantize_model_mkldnn" in (caught.value.hint or "")


def test_mutations_are_refused_or_imported() -> None:
    """Replaces words of valid symbols, and bytes of valid parameters: every error is an `OctetError`."""
    rng = np.random.default_rng(0)
    outcomes = {"imported": 0, "refused": 0}
    for _ in range(300):
        name = str(rng.choice(["sg_channels", "sg_inception", "contrib_chain"]))
        symbol, params = mutated_symbol(symbol_of(name), rng), bytearray(params_of(name))
        if rng.random() < 0.3:
            params[int(rng.integers(len(params)))] = int(rng.integers(256))
        try:
            import_model(pack(symbol, bytes(params)))
            outcomes["imported"] += 1
        except OctetError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10


HOSTILE: list[Any] = [None, -1, 0, 3, 1 << 31, 1 << 80, 1e400, "", "None", "(1, 2)", "(999999999, 2)", "-5", "nan", []]


def mutated_symbol(document: Document, rng: np.random.Generator) -> bytes:
    node = document["nodes"][int(rng.integers(len(document["nodes"])))]
    if node.get("subgraphs") and rng.random() < 0.5:
        inside = node["subgraphs"][0]["nodes"]
        node = inside[int(rng.integers(len(inside)))]
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    if node.get("attrs") and rng.random() < 0.6:
        key = str(rng.choice(sorted(node["attrs"])))
        node["attrs"][key] = value
    elif node["inputs"] and rng.random() < 0.7:
        position = int(rng.integers(len(node["inputs"])))
        others = [[int(rng.integers(60)), int(rng.integers(3)), 0], value, [value, 0, 0]]
        node["inputs"][position] = others[int(rng.integers(3))]
    else:
        node[str(rng.choice(["op", "name", "inputs", "attrs", "subgraphs"]))] = value
    return json.dumps(document).encode()
