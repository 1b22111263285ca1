"""Code printed for GPUs computes the same bits as the same tensor program compiled for this machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from service.compiler.lowering.gpu.functions import Printed, of_nest, of_whole
from service.compiler.lowering.gpu.printer import Printer
from service.compiler.lowering.gpu.stages import inlined, stages_of
from service.compiler.qnn.numerics.extremes import larger, smaller
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from tools.cuda_emulator.emulated_kernel import EmulatedKernel

import tvm  # isort: skip
from tvm.script import tirx as T  # isort: skip

Body = Callable[[Any, Any], Any]

WHOLE: dict[str, Body] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "larger": tirx.max,
    "smaller": tirx.min,
    "divide": lambda a, b: tirx.truncdiv(a, tirx.Select(b == 0, _like(b, 3), b)),
    "remain": lambda a, b: tirx.truncmod(a, tirx.Select(b == 0, _like(b, 3), b)),
    "floor divide": lambda a, b: tirx.floordiv(a, tirx.Select(b == 0, _like(b, 3), b)),
    "floor remain": lambda a, b: tirx.floormod(a, tirx.Select(b == 0, _like(b, 3), b)),
    "shift left": lambda a, b: a << (b & _like(b, 7)),
    "shift right": lambda a, b: a >> (b & _like(b, 7)),
    "bits": lambda a, b: (a & b) ^ (a | _like(a, 5)),
    "compare": lambda a, b: tirx.Select(tirx.all(a < b, a != _like(a, 3)), a, b),
    "or": lambda a, b: tirx.Select(tirx.any(a >= b, tirx.Not(a == b)), b, a),
    "narrow": lambda a, b: a.astype("int8").astype(str(b.ty.dtype)),
    "real": lambda a, b: a.astype("float32").astype("float64").astype("int64").astype(str(b.ty.dtype)),
}
REAL: dict[str, Body] = {
    "add": lambda a, b: a + b,
    "multiply and add": lambda a, b: tirx.call_llvm_pure_intrin(_dtype(a), "llvm.arithmetic.fence", a * b) + a,
    "fused": lambda a, b: tirx.call_llvm_pure_intrin(_dtype(a), "llvm.fma", a, b, a),
    "divide": lambda a, b: a / b,
    "larger": tirx.max,
    "smaller": tirx.min,
    "larger or NaN": larger,
    "smaller or NaN": smaller,
    "root": lambda a, b: tirx.sqrt(a) + tirx.const(0.0, _dtype(b)),
    "rounded": lambda a, b: tirx.nearbyint(a) - tirx.trunc(b),
    "floor": lambda a, b: tirx.floor(a) + tirx.ceil(b),
    "sign": lambda a, b: tirx.call_llvm_pure_intrin(_dtype(a), "llvm.copysign", a, b),
    "size": lambda a, b: tirx.abs(a),
    "nan": lambda a, b: tirx.Select(tirx.isnan(a), b, a),
    "compare": lambda a, b: tirx.Select(tirx.any(a < b, a == b), a, tirx.Select(a != b, b, _like(a, 7))),
    "bits": lambda a, b: tirx.reinterpret(_dtype(a), tirx.reinterpret(_bits(a), a) ^ tirx.reinterpret(_bits(b), b)),
    "infinite": lambda a, b: tirx.Select(a < tirx.const(float("inf"), _dtype(a)), a, b),
    "whole": lambda a, b: a.astype("int32").astype(_dtype(b)),
    "whole, wide": lambda a, b: a.astype("int64").astype(_dtype(b)),
}


def _dtype(expr: Any) -> str:
    return str(expr.ty.dtype)


def _bits(expr: Any) -> str:
    return _dtype(expr).replace("float", "int")


def _like(expr: Any, value: int) -> Any:
    return tirx.const(value, _dtype(expr))


def program(bodies: dict[str, Body], dtype: str, count: int) -> tirx.PrimFunc:
    a, b = te.placeholder((count,), dtype, name="a"), te.placeholder((count,), dtype, name="b")

    def made(name: str, body: Body) -> te.Tensor:
        return te.compute((count,), lambda i: body(a(i), b(i)).astype(dtype), name=name)

    return te.create_prim_func([a, b, *(made(f"made_{index}", body) for index, body in enumerate(bodies.values()))])


def on_this_machine(function: tirx.PrimFunc, operands: Sequence[Array]) -> list[Array]:
    tensors = [tvm.runtime.tensor(each) for each in operands]
    named = function.with_attr("global_symbol", "main")
    tvm.compile(tvm.IRModule({"main": named}), "llvm")["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def on_a_gpu(function: tirx.PrimFunc, operands: Sequence[Array]) -> list[Array]:
    """Runs the launches of `function` in order on an emulated GPU. Returns the contents of all parameters
    afterwards."""
    whole = inlined(function)
    nests = stages_of(whole)
    launches = [of_whole(whole)] if nests is None else [of_nest(nest) for nest in nests]
    values: dict[tirx.Var, Array] = {
        parameter: each.copy() for parameter, each in zip(whole.params, operands, strict=True)
    }
    kernels = [each.function.source.replace("OCTET_KERNEL", f"octet_{index}") for index, each in enumerate(launches)]
    headers = kernels[0].partition('extern "C" __global__')[0]
    source = headers + "".join(kernel.removeprefix(headers) for kernel in kernels)
    for index, each in enumerate(launches):
        _launch(EmulatedKernel(source, f"octet_{index}"), each, values)
    return [values[parameter] for parameter in whole.params]


def _launch(kernel: EmulatedKernel, printed: Printed, values: dict[tirx.Var, Array]) -> None:
    buffers = (*printed.inputs, *printed.outputs)
    for buffer in buffers:
        values.setdefault(buffer, np.zeros([int(size) for size in buffer.shape], str(buffer.dtype)))
    launch = printed.function.launch
    kernel.launch(launch.grid, launch.block, launch.shared_bytes, [values[buffer] for buffer in buffers])


def holds(function: tirx.PrimFunc, operands: Sequence[Array]) -> None:
    made = zip(on_a_gpu(function, operands), on_this_machine(function, operands), strict=True)
    for index, (mine, expected) in enumerate(made):
        np.testing.assert_array_equal(mine.view(np.uint8), expected.view(np.uint8), err_msg=str(index))


def pairs(values: Array) -> list[Array]:
    """Returns all pairs of two values, as two arrays."""
    return [np.ascontiguousarray(each) for each in np.array(list(itertools.product(values, values)), values.dtype).T]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_integers_wrap(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.min + 1, -7, -1, 0, 1, 2, 3, 100, limits.max // 2, limits.max - 1, limits.max]
    a, b = pairs(np.array([each for each in values if each >= limits.min], dtype))
    b[(a == limits.min) & (b == np.array(-1).astype(dtype)) & (limits.min < 0)] = 1  # this division traps
    bodies = {name: body for name, body in WHOLE.items() if name != "real" or limits.max < 1 << 31}
    made = [np.zeros(a.shape, dtype) for _ in bodies]
    holds(program(bodies, dtype, len(a)), [a, b, *made])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_numbers(dtype: str) -> None:
    limits = np.finfo(dtype)
    rng = np.random.default_rng(1)
    some = [0.0, -0.0, 0.5, 1.5, -2.5, 1e9, 3e9, -3e9, 1e19, limits.max, limits.tiny, limits.tiny / 4, np.inf, -np.inf]
    a, b = pairs(np.array([*some, np.nan, *rng.standard_normal(6)], dtype))
    made = [np.zeros(a.shape, dtype) for _ in REAL]
    operands = [a, b, *made]
    function = program(REAL, dtype, len(a))
    both = zip(on_a_gpu(function, operands), on_this_machine(function, operands), strict=True)
    for name, (mine, expected) in zip(["a", "b", *REAL], both, strict=True):
        nan = np.isnan(expected)  # the bits of a NaN may differ; no formula depends on them
        np.testing.assert_array_equal(np.isnan(mine), nan, err_msg=name)
        np.testing.assert_array_equal(mine[~nan].view(np.uint8), expected[~nan].view(np.uint8), err_msg=name)


def test_an_element_outside_its_buffer_is_not_read() -> None:
    x = te.placeholder((4,), "float32", name="x")
    padded = te.compute((9,), lambda i: tirx.if_then_else(tirx.all(i >= 3, i < 7), x[i - 3], tirx.const(2.0)))
    holds(te.create_prim_func([x, padded]), [np.arange(4, dtype=np.float32), np.zeros(9, np.float32)])


def test_a_statement_reads_the_values_of_earlier_statements() -> None:
    @T.prim_func(private=True, s_tir=True)  # type: ignore[untyped-decorator]
    def fibonacci(a_: T.handle, out_: T.handle) -> None:
        T.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True})
        a = T.match_buffer(a_, (2,), "int32")
        out = T.match_buffer(out_, (10,), "int32")
        with T.sblock("root"):
            last = T.sblock_alloc_buffer((2,), "int32")
            last[0] = a[0]
            last[1] = a[1]
            for i in range(10):
                out[i] = last[0] + last[1]
                if out[i] % 2 == 0:
                    last[0] = last[1]
                else:
                    last[0] = last[1] + 0
                last[1] = out[i]

    holds(fibonacci, [np.array([0, 1], np.int32), np.zeros(10, np.int32)])


def test_the_error_names_the_expression_that_cannot_be_printed() -> None:
    x = tirx.Var("x", "float16")
    with pytest.raises(Unsupported, match="float16"):
        Printer().define(x, "0")
    y = tirx.Var("y", "float32")
    printer = Printer()
    printer.define(y, "0")
    with pytest.raises(Unsupported, match="popcount"):
        printer.value(tirx.popcount(y.astype("int32")))
