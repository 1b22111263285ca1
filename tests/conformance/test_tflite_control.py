"""Operators that run subgraphs give LiteRT's results, or are refused."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array
from tests.support import evidence, litert
from tests.support.tflite_builder import ModelBuilder
from tests.support.tflite_control import ADD, BOOL, F, add_subgraph, binary, branches, called, endless, loop

X = np.arange(6, dtype=F).reshape(2, 3)


def _assert_equal(data: bytes, *samples: list[Array]) -> None:
    imported, loaded = import_model(data), litert.interpreter(data)
    for sample in samples:
        ours = oracle.run(imported.module, get_mode(LITERT_REFERENCE), sample)
        evidence.compare(imported, LITERT_REFERENCE, [ours], [litert.run(loaded, sample)])


def _operators(data: bytes) -> str:
    return str(import_model(data).module.script())


@pytest.mark.parametrize("shape", [(), (1,)])
def test_if_selects_the_computed_branch(shape: tuple[int, ...]) -> None:
    _assert_equal(branches(shape), *([np.full(shape, each), X] for each in (True, False)))


@pytest.mark.parametrize("known", [True, False])
def test_if_with_a_constant_condition_has_one_branch(known: bool) -> None:
    data = branches((), known=known)
    _assert_equal(data, [X])
    assert ("R.add" in _operators(data), "R.multiply" in _operators(data)) == (known, not known)


def test_the_other_branch_of_a_constant_condition_may_be_anything() -> None:
    data = branches((), known=True, other=binary("BUCKETIZE", np.zeros(3, F)))
    ours = oracle.run(import_model(data).module, get_mode(LITERT_REFERENCE), [X])
    np.testing.assert_array_equal(ours[0], X + np.array([1, 2, 3], F))


def test_branches_of_different_types_are_refused() -> None:
    with pytest.raises(MalformedModel, match="IF #0 computes float32 or bool"):
        import_model(branches((), other=binary("GREATER", np.zeros(3, F), BOOL)))


def test_a_composite_is_computed_by_its_decomposition() -> None:
    _assert_equal(called(), [X])


def test_call_equals_the_composite() -> None:
    one, other = (
        oracle.run(import_model(called(name)).module, get_mode(LITERT_REFERENCE), [X])
        for name in ("CALL", "STABLEHLO_COMPOSITE")
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_loop_with_a_constant_number_of_turns(turns: int) -> None:
    _assert_equal(loop(turns), [X])


@pytest.mark.parametrize("bound", [-1.0, 4.0, 11.0, 1000.0])
def test_a_loop_that_may_end_early(bound: float) -> None:
    _assert_equal(loop(5, bound=bound), [X], [X - 20])


def test_a_loop_without_a_constant_bound_is_refused() -> None:
    with pytest.raises(Unsupported, match="WHILE #0 runs until a condition that is computed from the inputs"):
        import_model(loop(None))


def test_a_loop_of_too_many_turns_is_refused() -> None:
    with pytest.raises(Unsupported, match="WHILE #0 runs more than 1024 turns"):
        import_model(loop(1 << 30))


def test_a_subgraph_that_runs_itself_is_refused() -> None:
    with pytest.raises(Unsupported, match="CALL #0 of subgraph 1 runs subgraphs in more than 16 levels"):
        import_model(endless())


def test_an_error_names_the_subgraph() -> None:
    with pytest.raises(Unsupported, match="BUCKETIZE #0 of subgraph 1"):
        import_model(branches((), one=binary("BUCKETIZE", np.zeros(3, F))))


def test_a_subgraph_that_does_not_exist() -> None:
    data = branches((), one=ADD)
    import_model(data)
    with pytest.raises(MalformedModel, match="calls subgraph 7; the file has 3 subgraphs"):
        import_model(_with_branch(7))


def _with_branch(number: int) -> bytes:
    builder = ModelBuilder()
    x, y, condition = builder.tensor("x", (3,), F), builder.tensor("y", (3,), F), builder.tensor("c", (), BOOL)
    for _ in range(2):
        add_subgraph(builder, [((3,), F)], ADD)
    builder.operator("IF", [condition, x], [y], schema.IfOptionsT(1, number))
    return builder.build([condition, x], [y])


def test_the_values_of_unrolled_loops_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.compiler.importers.tflite.node._MOST_VALUES", 100)
    import_model(loop(5))
    with pytest.raises(Unsupported, match="makes a model of more than 100 values: loops"):
        import_model(loop(500))
