"""PyTorch's quantized models against what PyTorch answered to them, engine by engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.compiler.facts import facts_of
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.numerics import FBGEMM
from service.core.options import with_shapes
from service.core.target import parse_target
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.torchscript import ENGINES, FIXTURES, answers, imported


def test_the_fixtures_are_there() -> None:
    assert len(FIXTURES) >= 5


@pytest.mark.parametrize("mode", ENGINES)
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_oracle_equals_torch(path: Path, mode: str) -> None:
    inputs, expected = answers(path, ENGINES[mode])
    model = imported(path)
    actual = oracle.run_all(model.module, get_mode(mode), [[x] for x in inputs])
    evidence.compare(model, mode, actual, expected)


COMPILED = [
    pytest.param(path, mode, marks=[] if mode == FBGEMM or path.stem == "residual" else pytest.mark.slow)
    for path in FIXTURES
    for mode in ENGINES
]


@pytest.mark.parametrize(("path", "mode"), COMPILED, ids=lambda value: getattr(value, "stem", value))
def test_compiled_model_equals_torch(path: Path, mode: str, tmp_path: Path) -> None:
    inputs, expected = answers(path, ENGINES[mode])
    model = compiled(path, mode, tmp_path, options=with_shapes({"": inputs[0].shape}))
    target = parse_target("host").name
    evidence.compare_compiled(facts_of(imported(path)), target, [model.run([x]) for x in inputs], expected)
