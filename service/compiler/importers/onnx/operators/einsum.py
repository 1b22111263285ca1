"""Einsum of float32: a sequence of transposes, sums and matrix products, from left to right."""

from __future__ import annotations

import math
import re
import string

from tvm import relax

from service.compiler.importers.onnx.node import Node
from service.compiler.importers.onnx.operators.real import float32
from service.compiler.importers.real import Wide
from service.compiler.qnn import ops
from service.compiler.qnn.graph import shape_of

_EQUATION = re.compile(r"((?:[a-zA-Z.]*,)*[a-zA-Z.]*)(?:->([a-zA-Z.]*))?")
_MOST_LETTERS = 26


def einsum(node: Node) -> relax.Var:
    """Computes a product of operands whose axes are letters (`bij,bjk->bik`). An ellipsis represents axes that all
    operands have.

    An operand with the same letter twice, which selects its diagonal, is refused.
    """
    float32(node, *range(node.input_count))
    terms, wanted = _letters(node)
    letters, x = terms[0], node.expr(0)
    for index in range(1, node.input_count):
        later = set(wanted).union(*terms[index + 1 :])
        letters, x = _product(node, (letters, x), (terms[index], node.expr(index)), later)
    letters, x = _summed(node, letters, x, set(wanted))
    order = [letters.index(each) for each in wanted]
    return node.emit(x if letters == wanted else relax.op.permute_dims(x, order))


def _letters(node: Node) -> tuple[list[str], str]:
    """Returns the axes of each operand and of the result, one letter for each axis."""
    equation = node.attribute("equation", "").replace(" ", "")
    match = _EQUATION.fullmatch(equation) if len(equation) < 1000 else None
    terms = match[1].split(",") if match else []
    if match is None or len(terms) != node.input_count:
        node.malformed(f"has the equation {equation[:100]!a}, which does not fit {node.input_count} operands")
    used = {each for each in equation if each in string.ascii_letters}
    spare = [each for each in string.ascii_letters if each not in used]
    rests = [len(node.shape(index)) - len(term.replace("...", "")) for index, term in enumerate(terms)]
    fits = all(rest >= 0 if "..." in term else rest == 0 for rest, term in zip(rests, terms, strict=True))
    most = max((rest for rest, term in zip(rests, terms, strict=True) if "..." in term), default=0)
    node.require(fits and len(used) + most <= _MOST_LETTERS, f"has the invalid equation {equation[:100]!a}")
    open_ = "".join(spare[:most])
    named = [
        term.replace("...", open_[most - rest :]) if "..." in term else term
        for rest, term in zip(rests, terms, strict=True)
    ]
    if match[2] is None:
        whole = "".join(named)
        result = open_ + "".join(sorted(each for each in used if whole.count(each) == 1))
    else:
        result = match[2].replace("...", open_)
    everything = "".join(named) + result
    node.require(
        "." not in everything and set(result) <= set("".join(named)), f"has the invalid equation {equation[:100]!a}"
    )
    node.require_supported(
        len(set(result)) == len(result), f"repeats an axis in its result {result}, which cannot be compiled"
    )
    if any(len(set(term)) != len(term) for term in named):
        node.unsupported(f"reads a diagonal, which cannot be compiled: {equation[:100]}")
    sizes: dict[str, int] = {}
    for index, term in enumerate(named):
        for letter, size in zip(term, node.shape(index), strict=True):
            node.require(sizes.setdefault(letter, size) == size, f"has different sizes for the axis {letter}")
    return named, result


def _product(
    node: Node, one: tuple[str, relax.Expr], other: tuple[str, relax.Expr], later: set[str]
) -> tuple[str, relax.Expr]:
    """Returns a product of two operands, summed over the letters that both have and that `later` does not contain."""
    lhs, x = _summed(node, *one, later | set(other[0]))
    rhs, y = _summed(node, *other, later | set(lhs))
    shared = [each for each in lhs if each in rhs]
    batch, inner = ([each for each in shared if (each in later) == kept] for kept in (True, False))
    rows, columns = [each for each in lhs if each not in shared], [each for each in rhs if each not in shared]
    sizes = dict(zip(lhs, shape_of(x), strict=True)) | dict(zip(rhs, shape_of(y), strict=True))
    a = _arranged(node, lhs, x, [batch, rows, inner], sizes)
    b = _arranged(node, rhs, y, [batch, inner, columns], sizes)
    result = node.emit(ops.real_matmul(a, b), "products")
    letters = [*batch, *rows, *columns]
    return "".join(letters), node.emit(relax.op.reshape(result, [sizes[each] for each in letters]), "apart")


def _arranged(node: Node, letters: str, x: relax.Expr, groups: list[list[str]], sizes: dict[str, int]) -> relax.Expr:
    """Returns `x` as matrices: keeps the axes of the first group, and merges the axes of each other group into one."""
    order = [letters.index(each) for group in groups for each in group]
    if order != sorted(order):
        x = node.emit(relax.op.permute_dims(x, order), "ordered")
    shape = [*(sizes[each] for each in groups[0]), *(math.prod(sizes[each] for each in group) for group in groups[1:])]
    return node.emit(relax.op.reshape(x, shape), "matrices")


def _summed(node: Node, letters: str, x: relax.Expr, kept: set[str]) -> tuple[str, relax.Expr]:
    """Sums over the axes that are not needed any more."""
    gone = [index for index, each in enumerate(letters) if each not in kept]
    if not gone:
        return letters, x
    wide = Wide(node.emit, x)
    total = wide(relax.op.sum(wide.x, axis=gone, keepdims=False))
    return "".join(each for each in letters if each in kept), node.emit(relax.op.astype(total, "float32"), "summed")
