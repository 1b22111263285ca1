"""Activations as a layer of memory of their own: one arena for each instance, taken when a model is loaded.

TVM plans which activations share memory. What is left of that in the code is two calls of the virtual machine for each
kernel, on every prediction. Here the plan becomes part of the artifact: each activation is a parameter of the entry
function, at an offset in an arena whose size is known.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.core.artifact import Slot
from service.core.buffers import ALIGNMENT_BYTES

_STORAGE, _TENSOR = "relax.memory.alloc_storage", "relax.memory.alloc_tensor"


def lift(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[Slot, ...]]:
    """`module`, its memory planned, with every activation as a further parameter of `main`.

    Requires: `main` allocates storage and tensors by `relax.memory`, of known sizes.
    """
    function = graph.main_of(module)
    plan = _Plan()
    blocks = [relax.BindingBlock(plan.rewritten(block)) for block in function.body.blocks]
    lifted = relax.Function(
        [*function.params, *plan.params],
        relax.SeqExpr(blocks, function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )
    functions = {variable: body for variable, body in module.functions.items() if not isinstance(body, relax.Function)}
    functions[module.get_global_var("main")] = lifted
    return tvm.IRModule(functions), tuple(plan.slots)


class _Plan:
    """Where each storage lies in the arena, and the parameters made of its tensors; one for all of the same kind."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.params: list[relax.Var] = []
        self._places: dict[relax.Var, int] = {}
        self._found: dict[Slot, relax.Var] = {}
        self._end = 0

    def rewritten(self, block: relax.BindingBlock) -> list[relax.VarBinding]:
        """The block's bindings without allocations."""
        kept = []
        for binding in block.bindings:
            name = binding.value.op.name if _is_operator(binding.value) else ""
            if name == _STORAGE:
                self._place(binding)
            elif name == _TENSOR:
                kept.append(relax.VarBinding(binding.var, self._parameter(binding.value)))
            else:
                kept.append(binding)
        return kept

    def _place(self, binding: relax.VarBinding) -> None:
        (size,) = (int(dim) for dim in binding.value.args[0].values)
        self._places[binding.var] = self._end
        self._end += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    def _parameter(self, call: relax.Call) -> relax.Var:
        storage, offset, shape, dtype, *_ = call.args
        dims = tuple(int(dim) for dim in shape.values)
        slot = Slot(str(dtype.value), dims, self._places[storage] + int(offset.value))
        if slot not in self._found:
            self._found[slot] = relax.Var(f"activation_{len(self.slots)}", relax.TensorType(list(dims), slot.dtype))
            self.slots.append(slot)
            self.params.append(self._found[slot])
        return self._found[slot]


def _is_operator(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
