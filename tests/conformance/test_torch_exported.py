"""PyTorch's exported programs, compared with PyTorch's own results.

Octet multiplies integers where PyTorch multiplies float32, and PyTorch adds in its own order. If a value is close to
the middle between two steps, PyTorch may choose the other step. In all fixtures, the 8-bit outputs are equal.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from service.compiler.importers.facts import facts_of
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import PT2E
from service.core.builds.options import with_shapes
from service.core.target import parse_target
from tests.support import evidence
from tests.support.compiling import compiled
from tests.support.exported import FIXTURES, imported
from tests.support.torchscript import answers

# Programs with real outputs. PyTorch rounds the sums in float32, and activations may differ by one step.
REAL = {
    "branches_inductor": 5e-5,
    "branches_xnnpack": 1e-7,
    "residual_inductor": 5e-7,
    "padded_inductor": 5e-8,
    "layers": 5e-5,
}


def test_the_fixtures_are_there() -> None:
    assert len(FIXTURES) >= 6


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_oracle_equals_torch(path: Path) -> None:
    inputs, expected = answers(path, PT2E)
    model = imported(path)
    actual = oracle.run_all(model.module, get_mode(PT2E), [[x] for x in inputs])
    evidence.compare(model, PT2E, actual, expected, REAL.get(path.stem, 0))


SOON = ("layers", "residual_xnnpack", "steps")
COMPILED = [pytest.param(path, marks=[] if path.stem in SOON else pytest.mark.slow, id=path.stem) for path in FIXTURES]


@pytest.mark.parametrize("path", COMPILED)
def test_compiled_program_equals_the_oracle(path: Path, tmp_path: Path) -> None:
    inputs, expected = answers(path, PT2E)
    model, own = compiled(path, PT2E, tmp_path, options=with_shapes({"": inputs[0].shape})), imported(path)
    actual = [model.run([x]) for x in inputs]
    computed = oracle.run_all(own.module, get_mode(PT2E), [[x] for x in inputs])
    assert evidence.differences(actual, computed)[1] == 0
    steps = REAL.get(path.stem, 0)
    evidence.compare_compiled(facts_of(own), parse_target("host").name, actual, expected, steps)
