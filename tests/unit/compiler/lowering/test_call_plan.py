"""The call plan of a lowered module lists its calls in order. Outputs are written to the caller's memory."""

from __future__ import annotations

import pytest

from service.compiler.lowering.call_plan import call_plan, plain_symbol
from service.core.artifacts.artifact import Slot
from service.core.artifacts.call_plan import Buffer, Call, CallPlan, Space
from service.core.errors import BuildFailed

import tvm  # isort: skip
from tvm import relax  # isort: skip

CONSTANT = Slot("int8", (16,), 64)
FIRST, SECOND, THIRD = (Slot("int8", (8,), offset) for offset in (0, 64, 128))


def variable(name: str, *shape: int) -> relax.Var:
    return relax.Var(name, relax.TensorType(list(shape), "int8"))


def calls(symbol: str, *operands: relax.Var) -> relax.VarBinding:
    nothing = relax.TupleType([])
    return relax.VarBinding(relax.Var("_", nothing), relax.Call(relax.ExternFunc(symbol), operands, None, [nothing]))


def named(var: relax.Var, value: relax.Expr) -> relax.VarBinding:
    return relax.VarBinding(var, value)


def module(params: list[relax.Var], bindings: list[relax.VarBinding], *results: relax.Expr) -> tvm.IRModule:
    body = results[0] if len(results) == 1 else relax.Tuple(list(results))
    function = relax.Function(params, relax.SeqExpr([relax.BindingBlock(bindings)], body), body.ty, is_pure=False)
    return tvm.IRModule({"main": function})


X, Y = variable("x", 8), variable("y", 8)
WEIGHTS = variable("weights", 16)
A, B, C = (variable(name, 8) for name in "abc")


def test_an_output_is_written_to_the_callers_memory_and_needs_no_arena() -> None:
    bindings = [calls("octet_f", X, WEIGHTS, A), calls("octet_g", A, B), calls("octet_h", B, C)]
    plan = call_plan(module([X, WEIGHTS, A, B, C], bindings, B), [CONSTANT], [FIRST, SECOND, THIRD])
    assert plan.calls[0] == Call("octet_f", (0, 1, 2))
    assert plan.buffers[:4] == (
        Buffer(Space.INPUT, 0, 8),
        Buffer(Space.CONSTANT, 64, 16),
        Buffer(Space.ARENA, 0, 8),
        Buffer(Space.OUTPUT, 0, 8),
    )
    assert plan.buffers[4] == Buffer(Space.ARENA, 64, 8)  # moved to the output's former offset in the arena
    assert plan.arena_bytes == 72
    assert plan.copies == ()


def test_other_names_of_a_tensor_are_the_same_buffer() -> None:
    flat = variable("flat", 8)
    reshaped = named(flat, relax.op.reshape(A, [8]))
    alias = named(Y, flat)
    plan = call_plan(
        module([X, A, B], [calls("octet_f", X, A), reshaped, alias, calls("octet_g", Y, B)], B), [], [FIRST, SECOND]
    )
    assert [call.operands for call in plan.calls] == [(0, 1), (1, 2)]


def test_an_output_that_shares_memory_is_copied() -> None:
    overlapping = Slot("int8", (8,), 64), Slot("int8", (128,), 64)
    wide = variable("wide", 128)
    bindings = [calls("octet_f", X, wide), calls("octet_g", wide, A)]
    plan = call_plan(module([X, A, wide], bindings, A), [], overlapping)
    ((source, to),) = plan.copies
    assert (plan.buffers[source].space, plan.buffers[to].space) == (Space.ARENA, Space.OUTPUT)


@pytest.mark.parametrize("results", [(X,), (A, A), (A, WEIGHTS)])
def test_inputs_constants_and_repeated_tensors_can_be_outputs(results: tuple[relax.Var, ...]) -> None:
    weights = [Slot("int8", (16,), 64)]
    plan = call_plan(module([X, WEIGHTS, A], [calls("octet_f", X, WEIGHTS, A)], *results), weights, [FIRST])
    written = {operand for call in plan.calls for operand in call.operands} | {to for _, to in plan.copies}
    outputs = {buffer.at: number for number, buffer in enumerate(plan.buffers) if buffer.space is Space.OUTPUT}
    assert sorted(outputs) == list(range(len(results)))
    assert set(outputs.values()) <= written


def test_states_are_the_last_inputs_and_outputs() -> None:
    plan = call_plan(module([X, Y, A, B], [calls("octet_f", X, Y, A, B)], A, B), [], [FIRST, SECOND], states=1)
    spaces = [plan.buffers[operand] for operand in plan.calls[0].operands]
    assert spaces == [
        Buffer(Space.INPUT, 0, 8),
        Buffer(Space.STATE, 0, 8),
        Buffer(Space.OUTPUT, 0, 8),
        Buffer(Space.NEXT_STATE, 0, 8),
    ]


def test_the_length_is_the_last_parameter_before_the_constants() -> None:
    length = relax.Var("length", relax.TensorType([1], "int32"))
    bindings = [calls("octet_f", X, length, WEIGHTS, A)]
    plan = call_plan(module([X, length, WEIGHTS, A], bindings, A), [CONSTANT], [FIRST], longest=8)
    assert plan.buffers[:3] == (Buffer(Space.INPUT, 0, 8), Buffer(Space.LENGTH, 0, 4), Buffer(Space.CONSTANT, 64, 16))
    assert plan.longest == 8


def test_a_binding_that_is_not_a_call_is_refused() -> None:
    with pytest.raises(BuildFailed, match="is not a call or an alias, so a call plan cannot contain it"):
        call_plan(module([X], [named(Y, relax.op.exp(X))], Y), [], [])


def test_any_function_name_is_converted_to_a_valid_symbol() -> None:
    """TVM names generated functions after Python functions, for example `<lambda>`."""
    symbols = [plain_symbol(name) for name in ("squares", "<lambda>", "<lambda>1", "nn.relu")]
    assert len(set(symbols)) == 4
    CallPlan(0, (), tuple(Call(symbol, ()) for symbol in symbols))
