"""Activations are in the arena: nothing is allocated while a model runs, and live activations do not overlap."""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.lowering import arena, constants
from service.compiler.lowering.codegen import FUSE, PLAN
from service.compiler.qnn import ops
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.artifacts.artifact import Slot
from service.core.errors import CorruptBlob
from tests.support.qnn_models import Emit, i8, module_of

import tvm  # isort: skip
from tvm import relax  # isort: skip


def lifted() -> tuple[relax.Function, tuple[Slot, ...]]:
    """Returns the lowered function of a chain of additions, and its slots. Each addition also reads the first
    tensor."""
    kind = i8(0.1)

    def body(emit: Emit, inputs: list[relax.Var]) -> relax.Var:
        first = emit(ops.max_pool2d(inputs[0], kind, kind, pool_size=(2, 2), strides=(1, 1)))
        y = first
        for _ in range(4):
            y = emit(
                ops.max_pool2d(emit(ops.add(y, first, kind, kind, kind)), kind, kind, pool_size=(1, 1), strides=(1, 1))
            )
        return emit(ops.add(y, first, kind, kind, kind))

    module = canonicalize(module_of([((1, 9, 9, 16), "int8")], body), get_mode("xnnpack"))
    module, _ = constants.lift(tvm.transform.Sequential(list(FUSE))(module))
    module, slots = arena.lift(tvm.transform.Sequential(list(PLAN))(module))
    return module["main"], slots


def test_nothing_is_allocated_while_the_model_runs() -> None:
    function, slots = lifted()
    assert "alloc_" not in function.script()
    assert len(function.params) == 1 + len(slots)


def test_live_activations_do_not_overlap() -> None:
    function, slots = lifted()
    (block,) = function.body.blocks
    # Maps each variable to the number of its activation.
    values = {var: position for position, var in enumerate(function.params[1:])}
    uses: dict[int, list[int]] = {position: [] for position in values.values()}
    for step, binding in enumerate(block.bindings):
        if isinstance(binding.value, relax.Var) and binding.value in values:
            values[binding.var] = values[binding.value]
        for arg in getattr(binding.value, "args", []):
            if arg in values:
                uses[values[arg]].append(step)
    uses[values[function.body.body]].append(len(block.bindings))
    # A slot can contain several activations, one after the other. So two slots that overlap in memory may be used
    # alternately, but not in the same step.
    for a, left in enumerate(slots):
        for b, right in enumerate(slots[:a]):
            if left.offset_bytes < right.end_bytes and right.offset_bytes < left.end_bytes:
                assert not set(uses[a]) & set(uses[b])


def test_the_arena_is_smaller_than_all_activations_together() -> None:
    _, slots = lifted()
    assert max(slot.end_bytes for slot in slots) < 11 * 9 * 9 * 16


@pytest.mark.parametrize(("shape", "offset"), [((4,), -64), ((-4,), 0)])
def test_a_slot_outside_memory_is_refused(shape: tuple[int, ...], offset: int) -> None:
    with pytest.raises(CorruptBlob):
        Slot("uint8", shape, offset)


def test_a_slot_ends_after_its_last_element() -> None:
    assert Slot("float32", (2, 3), 64).end_bytes == 64 + 24
    assert Slot("float32", (2, 3), 64) == Slot.from_json(Slot("float32", (2, 3), 64).to_json())
    assert np.dtype(Slot("int8", (), 0).dtype) == np.int8


def test_the_result_of_a_call_that_writes_in_place_is_its_operand() -> None:
    """Two kernels write parts of one tensor. Memory planning treats it as one tensor, which is live until its last
    use."""
    kind = relax.TensorType([256], "uint8")
    x = relax.Var("x", kind)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.call_dps_packed("first", relax.Tuple([x]), kind))
            whole = builder.emit(
                relax.op.call_inplace_packed("second", x, first, inplace_indices=1, ty_args=kind), "whole"
            )
            last = builder.emit_output(relax.call_dps_packed("last", relax.Tuple([whole]), kind))
        builder.emit_func_output(last)
    module, slots = arena.lift(tvm.transform.Sequential(list(PLAN))(builder.get()))
    bound = {binding.var: binding.value for binding in module["main"].body.blocks[0].bindings}
    calls = [value for value in bound.values() if isinstance(value, relax.Call)]
    assert [call.op.global_symbol for call in calls] == ["first", "second", "last"]
    assert len(slots) == 2

    def memory(expr: relax.Expr) -> relax.Expr:
        return memory(bound[expr]) if expr in bound else expr

    assert memory(calls[0].args[-1]).same_as(memory(calls[1].args[-1]))
    assert memory(calls[2].args[0]).same_as(memory(calls[0].args[-1]))
    assert not memory(calls[2].args[-1]).same_as(memory(calls[0].args[-1]))
