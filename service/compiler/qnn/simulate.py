"""Simulate: converts a quantized model to its simulated form, which shows how narrower accumulators would change its
results.

Requires: a model of `qnn.*` operators, as an importer returns it.
Ensures: values that were stored in 8 or 16 bits are float32, between `qnn.simulated_quantize` and
    `qnn.simulated_dequantize`. Sums of products are computed in float32 and wrapped around like accumulators of the
    given width. Operators without an accumulator read the values as integers. Inputs and outputs keep their types.
    The model's outputs are followed by the results of `qnn.simulated_extent`, one for each sum of products.

As long as no sum exceeds 2**24 and the accumulators hold all sums, the model's outputs are those of the integer form,
bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, ops
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.simulated import MOST_BITS

EXACT_BITS = 25  # bits in two's complement of the integers that float32 represents without gaps
SUMS = ("qnn.conv2d", "qnn.conv2d_transpose", "qnn.dense", "qnn.matmul")
_STORAGES = ("int8", "uint8", "int16", "uint16")


@dataclass(frozen=True)
class Simulation:
    """A model in its simulated form.

    Attributes:
        module: a module whose outputs are those of the model, followed by the extents of sums.
        sums: the names of the values that the extents belong to, in order.
    """

    module: tvm.IRModule
    sums: tuple[str, ...]


def simulate(module: tvm.IRModule, bits: int = 32) -> Simulation:
    """Returns `module` with accumulators of `bits`. If `bits` is more than `EXACT_BITS`, the accumulators keep their
    own width.
    """
    return _Simulating(bits).run(graph.main_of(module))


class _Simulating:
    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._builder = relax.BlockBuilder()
        self._held: dict[relax.Var, relax.Var] = {}  # old variable of a stored value -> its new float32 variable
        self._whole: dict[relax.Var, relax.Expr] = {}  # old variable -> its value in the original dtype
        self._extents: dict[str, relax.Var] = {}

    def run(self, function: relax.Function) -> Simulation:
        params = [relax.Var(param.name, param.ty) for param in function.params]
        with self._builder.function("main", params):
            with self._builder.dataflow():
                for before, param in zip(function.params, params, strict=True):
                    self._hold(before, param)
                for var, value, operation in graph.operations(function):
                    self._add(var, value, operation)
                results = [graph.substitute(result, self) for result in graph.results_of(function)]
                outputs = [self._builder.emit_output(each) for each in (*results, *self._extents.values())]
            self._builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        return Simulation(self._builder.get(), tuple(self._extents))

    def __getitem__(self, var: relax.Var) -> relax.Expr:
        """Returns a value in the form that integer operators read (`graph.Values`)."""
        if var not in self._whole:
            held = relax.op.astype(self._held[var], str(var.ty.dtype))
            self._whole[var] = self._emit(held, f"{var.name}_stored")
        return self._whole[var]

    def _add(self, var: relax.Var, value: relax.Expr, operation: graph.Found) -> None:
        if operation is None or not isinstance(value, relax.Call):
            self._hold(var, self._plain(var, value))
        elif operation.name in SUMS:
            self._accumulate(var, operation)
        elif operation.name == "qnn.quantize" and str(var.ty.dtype) in _STORAGES:
            (x,) = (graph.substitute(arg, self) for arg in value.args)
            self._held[var] = self._emit(ops.simulated_quantize(x, operation.quantized("out_type")), var.name)
        elif operation.name == "qnn.dequantize" and value.args[0] in self._held:
            held = self._held[value.args[0]]
            self._whole[var] = self._emit(ops.simulated_dequantize(held, operation.quantized("in_type")), var.name)
        else:
            self._hold(var, self._plain(var, value))

    def _accumulate(self, var: relax.Var, operation: Operation) -> None:
        dtype = str(operation.attr("accum_dtype"))
        bits = self._bits if self._bits <= EXACT_BITS else MOST_BITS[dtype]
        operands = [self._real(arg) for arg in operation.call.args]
        sums = self._emit(ops.with_operands(operation.call, *operands, accum_dtype="float32"), f"{var.name}_sums")
        self._extents[var.name] = self._emit(ops.simulated_extent(sums, bits), f"{var.name}_extent")
        self._whole[var] = self._emit(ops.simulated_accumulate(sums, bits, dtype), var.name)

    def _real(self, expr: relax.Expr) -> relax.Expr:
        """Returns an operand of a sum of products: its integers, as float32."""
        value = value_of(expr)
        if value is not None:
            return relax.const(value.astype(np.float32))
        if expr in self._held:
            return self._held[expr]
        return self._emit(relax.op.astype(graph.substitute(expr, self), "float32"), "bias")

    def _plain(self, var: relax.Var, value: relax.Expr) -> relax.Expr:
        """Emits a value unchanged, from operands in their original form."""
        if not isinstance(value, relax.Call):
            result = graph.substitute(value, self)
        else:
            result = graph.with_args(value, [graph.substitute(arg, self) for arg in value.args])
        return self._emit(result, f"{var.name}_integers" if _is_stored(var) else var.name)

    def _hold(self, var: relax.Var, whole: relax.Expr) -> None:
        if _is_stored(var):
            self._held[var] = self._emit(relax.op.astype(whole, "float32"), var.name)
        else:
            self._whole[var] = whole

    def _emit(self, expr: relax.Expr, name: str) -> relax.Var:
        return graph.emit(self._builder, expr, name)


def _is_stored(var: relax.Var) -> bool:
    return isinstance(var.ty, relax.TensorType) and str(var.ty.dtype) in _STORAGES
