"""Lowering for GPUs turns each stage of a function into a launch, and passes tensors between the launches."""

from __future__ import annotations

import pytest
from tvm import relax, te, tirx

from service.compiler.lowering.codegen import FUSE
from service.compiler.lowering.gpu.lowering import lower
from service.compiler.lowering.gpu.stages import inlined, stages_of
from service.compiler.qnn import graph, ops
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import Unsupported
from tests.support.qnn_models import Emit, module_of, u8

import tvm  # isort: skip
from tvm.script import tirx as T  # isort: skip

ROWS = [((2, 10), "float32")]


def lowered(module: tvm.IRModule) -> tuple[list[str], tvm.IRModule]:
    """Returns the symbols that `main` calls, in order, and the lowered module."""
    made = lower(tvm.transform.Sequential(list(FUSE))(module))
    values = (value for _, value in graph.bindings(graph.main_of(made.module)))
    called = [value for value in values if getattr(getattr(value, "op", None), "name", "") == "relax.call_dps_packed"]
    symbols = [str(call.args[0].global_symbol) for call in called]
    assert set(symbols) == set(made.kernels)
    assert not any(isinstance(function, tirx.PrimFunc) for function in made.module.functions.values())
    return symbols, made.module


def test_a_chain_of_elementwise_operators_is_one_launch() -> None:
    def body(emit: Emit, x: list[relax.Var]) -> relax.Var:
        stored = emit(ops.quantize(x[0], u8(0.5, 3)))
        return emit(ops.dequantize(emit(ops.requantize(stored, u8(0.5, 3), u8(0.25, 9))), u8(0.25, 9)))

    symbols, _ = lowered(canonicalize(module_of(ROWS, body), get_mode(LITERT_REFERENCE)))
    assert [symbol.rpartition("_")[0] for symbol in symbols] == ["octet_plain_fused_quantize_requantize_dequantize"]


def test_each_reduction_is_a_launch_and_tensors_connect_the_launches() -> None:
    symbols, module = lowered(module_of(ROWS, lambda emit, x: emit(relax.op.nn.softmax(x[0], axis=1))))
    # The launches for the largest value, the sum and the quotients. The last two also compute the exponentials.
    assert len(symbols) == 3
    shapes = [graph.shape_of(var) for var, _ in graph.bindings(graph.main_of(module))]
    assert shapes[:3] == [(2,), (2,), (2, 10)]


def test_several_sums_of_one_pass_are_one_launch() -> None:
    """For argmax, one launch finds the index and the value of the largest element together."""
    symbols, _ = lowered(module_of(ROWS, lambda emit, x: emit(relax.op.argmax(x[0], axis=1))))
    assert len(symbols) == 2  # the second launch only copies the indices


def test_a_reshape_remains_an_alias() -> None:
    def body(emit: Emit, x: list[relax.Var]) -> relax.Var:
        flat = emit(relax.op.reshape(emit(relax.op.negative(x[0])), (20,)))
        return emit(relax.op.negative(flat))

    symbols, module = lowered(module_of(ROWS, body))
    assert len(symbols) == 2
    values = (value for _, value in graph.bindings(graph.main_of(module)))
    assert sum(getattr(getattr(value, "op", None), "name", "") == "relax.reshape" for value in values) == 1


def test_equal_functions_are_one_kernel() -> None:
    def body(emit: Emit, x: list[relax.Var]) -> list[relax.Var]:
        return [emit(ops.quantize(each, u8(0.5, 3))) for each in x]

    module = canonicalize(module_of(2 * ROWS, body), get_mode(LITERT_REFERENCE))
    symbols, _ = lowered(module)
    assert len(symbols) == 2
    assert len(set(symbols)) == 1


def test_a_program_that_reads_its_output_runs_in_one_thread() -> None:
    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def running_sum(x_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True})
        x = T.match_buffer(x_, (4,), "int32")
        out = T.match_buffer(out_, (4,), "int32")
        with T.sblock("root"):
            out[0] = x[0]
            for i in range(3):
                out[i + 1] = out[i] + x[i + 1]

    assert stages_of(inlined(running_sum)) is None


def test_the_error_names_an_unsupported_operator() -> None:
    module = module_of([((4,), "float16")], lambda emit, x: emit(relax.op.negative(x[0])))
    with pytest.raises(Unsupported, match=r"^tir_negative: .*float16"):
        lowered(module)


def test_an_expression_that_is_too_deep_is_refused() -> None:
    def compute(x: te.Tensor) -> te.Tensor:
        def element(i: tirx.Var) -> tvm.ir.Expr:
            value = x(i)
            for _ in range(600):
                value = (value + 1) ^ 3
            return value

        return te.compute((4,), element)

    def body(emit: Emit, x: list[relax.Var]) -> relax.Var:
        return emit(relax.BlockBuilder.current().call_te(compute, x[0], primfunc_name_hint="deep"))

    with pytest.raises(Unsupported, match=r"^deep: its expressions are nested too deep"):
        lowered(module_of([((4,), "int32")], body))
