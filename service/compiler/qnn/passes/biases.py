"""Join biases: if a constant row is added to a product of real values, makes the row the product's bias.

The results are equal: a product with a bias also rounds its sum to float32, adds the bias and rounds again.

Requires: a model of `qnn.*` and plain operators.
Ensures: the outputs do not change. If only the addition of a constant row reads a product, the product computes that
    addition too.
"""

from __future__ import annotations

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.operation import value_of

# operator -> number of operands besides a bias
_PRODUCTS = {"qnn.block_matmul": 4, "qnn.real_conv2d": 2, "qnn.real_matmul": 2}


def join_biases(module: tvm.IRModule, mode: Mode) -> tuple[tvm.IRModule, list[str]]:
    """Returns `module` with these additions as biases of the products, and the names of the sums."""
    function = graph.main_of(module)
    uses = graph.uses_of(function)
    products: dict[relax.Var, relax.Call] = {}
    joined: dict[relax.Call, tuple[relax.Call, relax.Constant]] = {}
    names: list[str] = []
    for var, value, operation in graph.operations(function):
        if operation is not None and _PRODUCTS.get(operation.name) == len(value.args) and uses[var] == 1:
            products[var] = value
        elif getattr(getattr(value, "op", None), "name", "") == "relax.add":
            for term, other in (value.args, value.args[::-1]):
                row = _row(other, graph.shape_of(var))
                if row is not None and term in products and graph.shape_of(term) == graph.shape_of(var):
                    joined[value] = products[term], relax.const(row)
                    names.append(str(var.name))
    if not joined:
        return module, []
    operands: dict[relax.Call, list[relax.Expr]] = {}  # product -> its operands in the new function

    def join(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        operands[call] = args
        if call not in joined:
            return graph.with_args(call, args)
        product, bias = joined[call]
        return ops.with_operands(product, *operands[product], bias)

    return graph.rewrite(module, join), names


def _row(expr: relax.Expr, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Returns a constant that has one value for each index of the last axis of `shape`, and does not vary along the
    other axes.
    """
    value = value_of(expr)
    if value is None or value.ndim == 0 or value.ndim > len(shape) or value.shape[-1:] != shape[-1:]:
        return None
    return value.reshape(-1) if value.size == shape[-1] else None
