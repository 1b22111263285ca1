"""Models that MXNet 1.9.1 quantized and ran. The oracle and the kernels give the same bits as MXNet."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.mxnet.package import pack_files
from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.transposes import move_transposes
from service.core.builds.numerics import MXNET_ONEDNN
from service.core.builds.options import with_shapes
from service.core.target import TARGETS, Target, detect_host
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.mxnet_models import NAMES, NETWORKS, answers_of, network_of, packed, symbol_of
from tests.support.selected import run_selected

# Results of a softmax differ from MXNet's by a few units in the last place.
STEPS = {"sg_softmax": 2.0**-22}
HERE = [target for target in TARGETS if target.architecture == "x86_64" and target.runs_on(detect_host())]


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_equals_mxnet(name: str) -> None:
    inputs, expected = answers_of(name)
    imported = import_model(packed(name))
    answers = oracle.run_all(imported.module, get_mode(MXNET_ONEDNN), [[sample] for sample in inputs])
    evidence.compare(imported, MXNET_ONEDNN, answers, [[each] for each in expected], STEPS.get(name, 0))


# Networks whose outputs are real values of a function or a float layer, which differ from MXNet's by a few units in the
# last place: the largest difference, as a part of the largest output.
REAL_ENDS = {"heads": 2.0**-22, "log_softmax": 2.0**-19, "normalized": 2.0**-22, "rows": 2.0**-22}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_layer_equal_mxnet(name: str) -> None:
    data, inputs, expected = network_of(name)
    imported = import_model(data, shapes={"": inputs[0].shape})
    answers = oracle.run_all(imported.module, get_mode(MXNET_ONEDNN), [[sample] for sample in inputs])
    for ours, theirs in zip(answers, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            tolerance = REAL_ENDS.get(name, 0) * float(np.abs(other).max())
            np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "name",
    [
        "dense_block",
        "embedded",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("conv_gelu", "multiplied", "excluded", "upsampled")),
    ],
)
def test_compiled_networks_equal_the_oracle(name: str, tmp_path: Path) -> None:
    data, inputs, _ = network_of(name)
    imported = import_model(data, shapes={"": inputs[0].shape})
    expected = oracle.run(imported.module, get_mode(MXNET_ONEDNN), [inputs[-1]])
    module = move_transposes(imported.module)
    _, outputs = run_selected(module, HERE[-1], MXNET_ONEDNN, [inputs[-1]], tmp_path)
    for ours, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# `make test` compiles each network for one target, in rotation, and `make test-all` for every target.
KERNELS = [
    pytest.param(name, target, marks=[pytest.mark.slow] * (number % len(HERE) != index), id=f"{name}-{target}")
    for number, name in enumerate(NAMES)
    for index, target in enumerate(HERE)
]


@pytest.mark.parametrize(("name", "target"), KERNELS)
def test_kernels_equal_mxnet(name: str, target: Target, tmp_path: Path) -> None:
    inputs, expected = answers_of(name)
    imported = import_model(packed(name))
    selection, outputs = run_selected(move_transposes(imported.module), target, MXNET_ONEDNN, [inputs[-1]], tmp_path)
    evidence.compare_compiled(facts_of(imported), target.name, [outputs], [[expected[-1]]], STEPS.get(name, 0))
    kernels = Counter(layer["kernel"] for layer in selection.layers)
    convolutions = sum(node["op"].endswith(("mkldnn_conv", "quantized_conv")) for node in symbol_of(name)["nodes"])
    assert sum(kernels[family] for family in ("conv", "depthwise", "grouped", "matrix")) >= convolutions


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_networks_of_the_zoo(tmp_path: Path) -> None:
    """The test uses whole networks with random weights, which `scripts/make_mxnet_fixtures.py --zoo` writes."""
    folder = os.environ.get("OCTET_MXNET_MODELS")
    if not folder:
        pytest.skip("OCTET_MXNET_MODELS names no folder of MXNet's models")
    for symbol in sorted(Path(folder).glob("*-symbol.json")):
        name = symbol.name.removesuffix("-symbol.json")
        if not (saved := symbol.with_name(f"{name}.npz")).exists():
            continue
        inputs, expected = np.load(saved)["inputs"], np.load(saved)["outputs"]
        (folder_of_one := tmp_path / name).mkdir()
        archive = folder_of_one / "model.zip"
        archive.write_bytes(pack_files(symbol))
        model = compiled(archive, MXNET_ONEDNN, folder_of_one, options=with_shapes({"data": inputs.shape[1:]}))
        ours = np.concatenate([model(sample) for sample in inputs])
        theirs = np.concatenate(list(expected))
        evidence.note_accuracy(name, "mxnet", MXNET_ONEDNN, theirs, ours, None)
        np.testing.assert_array_equal(ours, theirs)


def test_fixtures_have_every_form() -> None:
    found = {node["op"] for name in NAMES for node in symbol_of(name)["nodes"]}
    flags = {flag for name in NAMES for node in symbol_of(name)["nodes"] for flag in node.get("attrs", {})}
    assert {"_sg_mkldnn_conv", "_sg_mkldnn_fully_connected", "_contrib_quantized_conv", "_contrib_requantize"} <= found
    assert {"with_bn", "with_act", "with_sum", "with_postsum_act", "channel_wise_quantize"} <= flags
    # A sum over an int8 residual is limited to 127, although its output is declared as uint8. The fixture reaches this
    # limit.
    function = graph.main_of(import_model(packed("sg_residual")).module)
    bounds = [o.per_tensor("out_type").max for _, _, o in graph.operations(function) if o and o.name.endswith("_add")]
    assert bounds == [255, 127]
