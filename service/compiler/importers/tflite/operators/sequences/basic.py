"""LSTM: one step of an LSTM, with the inputs of a sequence LSTM, or with one matrix of weights (the basic kernel)."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.sequences import lstm as layers
from service.compiler.importers.tflite.operators.sequences import products
from service.compiler.qnn import ops

_BASIC_INPUTS = 5


def lstm(node: Node) -> relax.Expr | list[relax.Expr]:
    if node.input_count == _BASIC_INPUTS:
        return _basic(node)
    shape = node.input(0).shape
    node.require(len(shape) == 2, f"has an input of shape {list(shape)}, not two dimensions", node.input(0))
    node.require(node.input_count >= 20, f"has {node.input_count} inputs")
    (result,) = layers.Layer(node, layers.FORWARD, shape[0]).run([node.expr(0)])
    return result


def _basic(node: Node) -> list[relax.Expr]:
    """Converts the basic kernel (`LstmCell` in reference_ops.h). The order of its gates is input, cell, forget, output.
    The inputs are x, the hidden state, weights, biases and the cell state; the outputs are the hidden state, the cell
    state and two intermediate values.
    """
    (rows, _), size = node.input(0).shape, node.input(1).shape[-1]
    node.require(len(node.outputs) == 4, f"has {len(node.outputs)} outputs, not 4")
    both = node.emit(relax.op.concat([node.expr(0), node.expr(1)], 1), "inputs")
    node.require(node.input(2).shape[0] == 4 * size, f"has weights of shape {list(node.input(2).shape)}", node.input(2))
    bias = relax.const(products.vector(node, 3, 4 * size))
    sums = node.emit(relax.op.add(products.product(node, [2])(both), bias), "sums")
    parts = [node.emit(relax.op.strided_slice(sums, [1], [k * size], [(k + 1) * size]), "gate") for k in range(4)]
    entering, forget, leaving = (products.sigmoid(node, parts[index]) for index in (0, 2, 3))
    candidate = node.emit(ops.real_function("tanh", parts[1]), "candidate")
    old = products.state(node, 4, rows, size)
    new = node.emit(relax.op.multiply(entering, candidate), "new")
    cell = node.emit(relax.op.add(new, node.emit(relax.op.multiply(forget, old), "kept")), "cell")
    shown = node.emit(relax.op.multiply(leaving, node.emit(ops.real_function("tanh", cell), "shown")))
    return [shown, cell, both, sums]
