"""A float product is rounded before something is added to it, in the code of every target."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import tirx

from service.compiler.kernels.program import Program, load
from service.compiler.kernels.rounding import round_all_products, round_products
from service.compiler.targets import codegen_target
from service.core.target import Target, detect_host, parse_target

TARGETS = ["x86-64-v4+vnni", "x86-64-v3", "aarch64+dotprod", "riscv64+v"]
FUSED = re.compile(r"\b(v?fn?m(add|sub|acc|sac)\w*|fml[as])\b")
SIZE = 16


def sums(lanes: int) -> tvm.IRModule:
    """Builds a function that computes `a * b + c` and `(a * b) - (b * c)` of float32, `lanes` values at a time.

    The first product is stored in a local variable before the addition.
    """
    program = Program()
    a, b, c, total, rest = (program.parameter(name, "float32", SIZE) for name in ("a", "b", "c", "total", "rest"))
    dtype = "float32" if lanes == 1 else f"float32x{lanes}"
    with program.loop(SIZE // lanes, "step") as step:
        x, y, z = (program.bind(load(buffer, step * lanes, lanes), dtype) for buffer in (a, b, c))
        product = program.register("float32", lanes)
        product.value = x * y
        program.store(total, step * lanes, product.value + z, lanes)
        program.store(rest, step * lanes, x * y - y * z, lanes)
    return tvm.IRModule({"main": program.function().with_attr("global_symbol", "main")})


def target_of(target: Target) -> tvm.target.Target:
    return tvm.target.Target(dict(codegen_target(target).llvm))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", TARGETS)
def test_no_product_and_sum_are_contracted(name: str, lanes: int) -> None:
    module, target = sums(lanes), target_of(parse_target(name))
    before, after = (tvm.compile(each, target).mod.inspect_source("s") for each in (module, round_all_products(module)))
    assert FUSED.search(before), "without the pass, LLVM contracts products and sums"
    assert not FUSED.search(after)


@pytest.mark.parametrize("lanes", [1, 4])
def test_compiled_values_are_those_of_numpy(lanes: int) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(0, 1, SIZE).astype(np.float32) for _ in range(3))
    outputs = [tvm.runtime.empty((SIZE,), "float32") for _ in range(2)]
    compiled = tvm.compile(round_all_products(sums(lanes)), target_of(detect_host().target))
    compiled["main"](*map(tvm.runtime.tensor, (a, b, c)), *outputs)
    np.testing.assert_array_equal(outputs[0].numpy(), a * b + c)
    np.testing.assert_array_equal(outputs[1].numpy(), a * b - b * c)


def test_a_product_to_which_nothing_is_added_has_no_fence() -> None:
    out, x = tirx.decl_buffer((1,), "float32", "out"), tirx.Var("x", "float32")
    at = [tirx.const(0, "int32")]

    def fences(value: tirx.PrimExpr) -> int:
        return str(round_products(tirx.PrimFunc([out, x], tirx.BufferStore(out, value, at)))).count("fence")

    assert fences(tirx.max(x * x * x, x) / (x * x)) == 0
    assert fences(x * x * x + x) == 1
    assert fences(tirx.Select(x * x > x, x, -x) * x) == 1, "a later operation may add to the outer product"
