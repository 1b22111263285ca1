"""PyTorch's quantized models, compared with PyTorch's own results for each engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import FBGEMM, ONEDNN, QNNPACK
from service.core.builds.options import with_shapes
from service.core.errors import UnsupportedOperator
from service.core.target import parse_target
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.torchscript import ENGINES, FIXTURES, FOLDER, answers, imported

FLOAT = FOLDER.parent / "float"


def test_the_fixtures_are_there() -> None:
    assert len(FIXTURES) >= 5


# Results of PyTorch's engine qnnpack that differ from its other engines because of bugs. qnnpack includes padding in
# averages that should exclude it. If hardtanh and ReLU6 are not fused, qnnpack reads a channels-last image as if the
# channels came first, so the elements of the result are at wrong positions.
MISTAKEN = {("branches", QNNPACK), ("depthwise", QNNPACK)}
# The order in which onednn scales sums depends on the number of sums. The rule is not known.
UNKNOWN = {(name, ONEDNN) for name in ("dynamic", "recurrent", "recurrent_traced")}
# PyTorch computes the functions of gates with other polynomials, so that values of up to 4 differ in their last bits.
TOLERANCES = {"recurrent": 2.0**-21, "recurrent_traced": 2.0**-21}
CASES = [(path, mode) for path in FIXTURES for mode in ENGINES if (path.stem, mode) not in MISTAKEN | UNKNOWN]


def test_an_average_that_the_engine_gets_wrong_is_refused() -> None:
    path = next(path for path in FIXTURES if path.stem == "branches")
    inputs, _ = answers(path, "qnnpack")
    with pytest.raises(UnsupportedOperator, match="counts the padding"):
        oracle.run_all(imported(path).module, get_mode(QNNPACK), [[inputs[0]]])


def test_an_order_of_scaling_that_is_not_known_is_refused() -> None:
    path = next(path for path in FIXTURES if path.stem == "dynamic")
    inputs, _ = answers(path, "onednn")
    with pytest.raises(UnsupportedOperator, match="onednn does not define dynamic_parameter"):
        oracle.run_all(imported(path).module, get_mode(ONEDNN), [[inputs[0]]])


@pytest.mark.parametrize(("path", "mode"), CASES, ids=lambda value: getattr(value, "stem", value))
def test_oracle_equals_torch(path: Path, mode: str) -> None:
    inputs, expected = answers(path, ENGINES[mode])
    model = imported(path)
    actual = oracle.run_all(model.module, get_mode(mode), [[x] for x in inputs])
    evidence.compare(model, mode, actual, expected, TOLERANCES.get(path.stem, 0))


# The networks that `make test` compiles for every engine, and for one. `make test-all` compiles all of them.
EVERY_ENGINE, ONE_ENGINE = ("residual",), ("branches", "dynamic", "functions")
COMPILED = [
    pytest.param(
        path,
        mode,
        marks=[] if path.stem in EVERY_ENGINE or (mode == FBGEMM and path.stem in ONE_ENGINE) else pytest.mark.slow,
    )
    for path, mode in CASES
]


@pytest.mark.parametrize(("path", "mode"), COMPILED, ids=lambda value: getattr(value, "stem", value))
def test_compiled_model_equals_torch(path: Path, mode: str, tmp_path: Path) -> None:
    inputs, expected = answers(path, ENGINES[mode])
    model = compiled(path, mode, tmp_path, options=with_shapes({"": inputs[0].shape}))
    target = parse_target("host").name
    tolerance = TOLERANCES.get(path.stem, 0)
    evidence.compare_compiled(facts_of(imported(path)), target, [model.run([x]) for x in inputs], expected, tolerance)


def test_a_float_sequence_with_attention_equals_torch(tmp_path: Path) -> None:
    """The model contains Conv1d, padding to the same size, and the shapes that `nn.MultiheadAttention` divides. PyTorch
    adds real values in its own order, which changes the ranges that are computed at run time.
    """
    path = FLOAT / "sequence.pt"
    with np.load(path.with_suffix(".npz")) as arrays:
        x, expected = arrays["x"], [arrays["y0"], arrays["y1"]]
    actual = compiled(path, FBGEMM, tmp_path).run([x])
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
