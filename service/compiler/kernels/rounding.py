"""Ensures that every float product is rounded before something is added to it.

TVM allows LLVM to contract a product and a sum to a fused multiply-add, which rounds once. The formulas, and the
runtimes that they follow, round twice. TVM has no option to disable contraction. Computing the sum in float64 does not
help either, because LLVM knows that a float64 sum of two float32 values, rounded to float32, equals their float32 sum.
So each product is wrapped in `llvm.arithmetic.fence`, which returns its operand, and which LLVM does not optimize
across.

An intended fused multiply-add is written as `llvm.fma` (`qnn.expressions.tensors.fma`).
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target.codegen import llvm_lookup_intrinsic_id

_FENCE = "llvm.arithmetic.fence"
_FENCE_ID = llvm_lookup_intrinsic_id(_FENCE)
# Operations that do not add to their operands, so that their operands need no fence.
_NOT_SUMS = (tirx.Div, tirx.Min, tirx.Max, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def round_products(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns `function` with a fence around each float product that something may be added to.

    Requires: loops are vectorized already, so that each product has its final type.
    """
    callbacks = [(tirx.Mul, lambda product: _fenced(_without_fences(product))), (_NOT_SUMS, _without_fences)]
    return function.with_body(tvm_ffi.structural_map(function.body, callbacks))


@tvm.transform.module_pass(opt_level=0, name="RoundProducts")  # type: ignore[untyped-decorator]
def round_all_products(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Applies `round_products` to every function of a module."""
    functions = {
        variable: round_products(function) if isinstance(function, tirx.PrimFunc) else function
        for variable, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _fenced(product: Any) -> Any:
    dtype = str(product.ty.dtype)
    if not dtype.startswith("float") or _is_minus_one(product.a) or _is_minus_one(product.b):
        return product
    return tirx.call_llvm_pure_intrin(dtype, _FENCE, product)


def _is_minus_one(value: Any) -> bool:
    """Returns true for a factor of -1, with which TVM writes a negation. Such a product is exact and needs no fence."""
    return isinstance(value, tirx.FloatImm) and float(value) == -1.0


def _without_fences(node: Any) -> Any:
    """Removes the fences around the operands of a binary operation."""
    a, b = _inside_fence(node.a), _inside_fence(node.b)
    return node if a is node.a and b is node.b else type(node)(a, b)


def _inside_fence(value: Any) -> Any:
    is_fence = isinstance(value, tvm.ir.Call) and len(value.args) == 2 and _is_fence_id(value.args[0])
    return value.args[1] if is_fence else value


def _is_fence_id(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == _FENCE_ID
