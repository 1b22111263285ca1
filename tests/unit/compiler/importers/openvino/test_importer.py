"""Graphs of OpenVINO are imported. Graphs that cannot be imported are refused, and the error names the layer."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.openvino.file.package import pack
from service.core.builds.build import Stage
from service.core.errors import MalformedModel, OctetError, Unsupported, UnsupportedOperator
from service.core.models.signature import TensorSpec
from tests.support.openvino_models import files_of, packed

Edit = Callable[[str], str]


def replaced(old: str, new: str, count: int = 1) -> Edit:
    def edit(graph: str) -> str:
        assert old in graph
        return graph.replace(old, new, count)

    return edit


def test_signature() -> None:
    signature = import_model(packed("detector_mixed")).signature
    assert signature.inputs == (TensorSpec("data", "FP32", (1, 3, 8, 8)),)
    assert [spec.shape for spec in signature.outputs] == [(1, 20, 4), (1, 20, 4)]
    assert import_model(packed("preprocess_mixed")).signature.inputs[0].datatype == "UINT8"


def test_an_open_batch_becomes_one_or_the_given_size() -> None:
    open_batch = packed("dense_mixed", replaced('shape="2,16"', 'shape="?,16"'))
    assert import_model(open_batch).signature.inputs[0].shape == (1, 16)
    assert import_model(open_batch, shapes={"data": [3, 16]}).signature.inputs[0].shape == (3, 16)


def test_version_10_is_read_like_version_11() -> None:
    older = import_model(packed("padded_mixed", replaced('version="11"', 'version="10"')))
    assert older.signature == import_model(packed("padded_mixed")).signature


def test_facts() -> None:
    facts = facts_of(import_model(packed("padded_performance")))
    assert facts.format == "openvino"
    assert facts.weights is not None
    assert facts.weights.granularity == ("per-axis",)


def test_compressed_weights_stay_stored() -> None:
    facts = facts_of(import_model(packed("attention_int8_asym")))
    assert facts.parameter_bytes < 2 * len(files_of("attention_int8_asym")[1])


INPUT = 'shape="1,3,9,9" element_type="f32"'


def without_layers(_: str) -> str:
    return '<?xml version="1.0"?><net name="n" version="11"><layers/><edges/></net>'


@pytest.mark.parametrize(
    ("edit", "error", "what"),
    [
        (replaced('version="11"', 'version="7"'), Unsupported, "the IR has version 7; only 10 and 11"),
        (replaced('type="ReLU"', 'type="Proposal"'), UnsupportedOperator, "cannot be compiled: Proposal"),
        (replaced('element_type="i8"', 'element_type="nf4"'), Unsupported, "stores 'nf4', which cannot be compiled"),
        (replaced('shape="1,3,9,9"', 'shape="..."'), Unsupported, "any number of dimensions"),
        (replaced(INPUT, INPUT.replace("f32", "string")), Unsupported, "is 'string'"),
        (replaced('shape="1,3,9,9"', 'shape="1,3,?,?"'), Unsupported, "every dimension except the batch"),
        (replaced('shape="1,3,9,9"', 'shape="1,3,9,x"'), MalformedModel, "has the dimension 'x', not a number"),
        (replaced("<net ", "<graph ", 1), MalformedModel, "mismatched tag"),
        (without_layers, MalformedModel, "has 0 layers"),
        (replaced('levels="256"', 'levels="1"'), MalformedModel, "has 1 levels"),
        (replaced('offset="0" size="4"', 'offset="99999999" size="4"'), MalformedModel, "4 bytes from byte 99999999"),
        (replaced('offset="0" size="4"', 'offset="0" size="-4"'), MalformedModel, "needs -4 bytes"),
        (replaced('offset="0" size="4"', 'offset="0" size="8"'), MalformedModel, "in 8 bytes, not in 4"),
        (replaced('strides="2, 2"', 'strides="0, 2"'), MalformedModel, "has the strides"),
        (replaced('auto_pad="same_upper"', 'auto_pad="left"'), MalformedModel, "unknown auto_pad 'left'"),
        (replaced('from-layer="0"', 'from-layer="99999"'), MalformedModel, "has an edge from port 0 of layer 99999"),
        (lambda graph: re.sub(r"<edges>.*</edges>", "<edges/>", graph, flags=re.S), MalformedModel, "no edge leads"),
    ],
)  # fmt: skip
def test_a_graph_is_refused_with_its_fault(edit: Edit, error: type[OctetError], what: str) -> None:
    with pytest.raises(error, match=what) as caught:
        import_model(packed("padded_mixed", edit))
    assert caught.value.stage == Stage.IMPORT


@pytest.mark.parametrize(
    ("name", "edit", "what"),
    [
        ("resized_mixed", replaced('output_padding="0, 0"', 'output_padding="0"'), "has lists of"),
        ("padded_mixed", replaced('type="Convolution"', 'type="ConvolutionBackpropData"'), "Backprop"),
        ("padded_mixed", replaced('type="Convolution"', 'type="GroupConvolutionBackpropData"'), "Backprop"),
        ("shuffle_mixed", replaced('type="Transpose"', 'type="AdaptiveAvgPool"'), "AdaptiveAvgPool"),
    ],
)  # fmt: skip
def test_lists_of_wrong_lengths_are_refused(name: str, edit: Edit, what: str) -> None:
    with pytest.raises(OctetError, match=what):
        import_model(packed(name, edit))


def test_a_cycle_is_malformed() -> None:
    graph, _ = files_of("padded_mixed")
    fake = re.search(r'<layer id="(\d+)"[^>]*type="FakeQuantize"', graph)
    relu = re.search(r'<layer id="(\d+)"[^>]*type="ReLU"', graph)
    assert fake is not None
    assert relu is not None
    first = f'<edge from-layer="0" from-port="0" to-layer="{fake[1]}" to-port="0" />'
    second = f'<edge from-layer="{relu[1]}" from-port="1" to-layer="{fake[1]}" to-port="0" />'
    with pytest.raises(MalformedModel, match="form a cycle"):
        import_model(packed("padded_mixed", replaced(first, second)))


def test_mutations_are_refused_or_imported() -> None:
    """Replaces words and numbers of graphs: every error is an `OctetError`."""
    rng = np.random.default_rng(0)
    outcomes = {"imported": 0, "refused": 0}
    for _ in range(120):
        name = str(rng.choice(["padded_mixed", "dense_mixed", "rows_mixed", "shuffle_mixed"]))
        words = re.split(r"(\w+)", files_of(name)[0])
        for _ in range(int(rng.integers(1, 4))):
            index = 2 * int(rng.integers(len(words) // 2)) + 1
            odd = ("0", "-1", "3", "99999999999", "", "Add", "true", "f16", "Const", "?")
            words[index] = str(rng.choice([*odd, *words[1:400:2]]))
        try:
            import_model(pack("".join(words).encode(), files_of(name)[1]))
            outcomes["imported"] += 1
        except OctetError:
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 10
