"""The stages of a function for GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from tvm import te

from service.compiler.lowering.gpu.functions import of_nest
from service.compiler.lowering.gpu.stages import inlined, stages_of


def test_shared_values_are_computed_once() -> None:
    x = te.placeholder((4,), "int32", name="x")

    def chain(value: Any) -> Any:
        for _ in range(9):
            value = (value * value) >> 1
        return value

    (nest,) = stages_of(inlined(te.create_prim_func([x, te.compute((4,), lambda i: chain(x[i]))]))) or ()
    assert of_nest(nest).function.source.count("times(t") == 9


@pytest.mark.parametrize(("elements", "blocks", "threads"), [(1, 1, 32), (4000, 125, 32), (1 << 20, 4096, 256)])
def test_few_elements_are_divided_among_many_blocks(elements: int, blocks: int, threads: int) -> None:
    x = te.placeholder((elements,), "int32", name="x")
    (nest,) = stages_of(inlined(te.create_prim_func([x, te.compute((elements,), lambda i: x[i] + 1)]))) or ()
    launch = of_nest(nest).function.launch
    assert (launch.grid, launch.block) == ((blocks, 1, 1), (threads, 1, 1))
