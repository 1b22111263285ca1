"""Places all activations in one arena, which each instance allocates when a model is loaded.

TVM plans which activations share memory, but the code that it generates still makes two calls of the virtual machine
for each kernel in every prediction. Here TVM's plan becomes part of the artifact: each activation is a parameter of the
entry function, and is at a fixed offset in an arena of constant size.
"""

from __future__ import annotations

import tvm
from tvm import relax

from service.compiler.qnn import graph
from service.core.artifacts.artifact import Slot
from service.core.artifacts.call_plan import ALIGNMENT_BYTES

_STORAGE, _TENSOR = "relax.memory.alloc_storage", "relax.memory.alloc_tensor"
_IN_PLACE = "relax.call_inplace_packed"


@tvm.transform.module_pass(opt_level=0, name="WriteInPlace")  # type: ignore[untyped-decorator]
def write_in_place(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Replaces calls that write into an operand and return it (`call_inplace_packed`) by calls that only write.

    Requires: one block of plain assignments, in order of execution, and no dataflow block. The kernels return nothing,
    like those of `call_dps_packed`.
    Ensures: the operand replaces the result of such a call, so that memory planning sees one tensor.
    """
    function = graph.main_of(module)
    (block,) = function.body.blocks
    written: dict[relax.Var, relax.Expr] = {}
    bindings = []
    for binding in block.bindings:
        value = _substituted(binding.value, written)
        if _is_operator(value) and value.op.name == _IN_PLACE:
            (position,) = (int(position) for position in value.attrs.inplace_indices)
            callee, *arguments = value.args
            written[binding.var] = arguments[position]
            nothing = relax.TupleType([])
            value, binding_var = relax.Call(callee, arguments, None, [nothing]), relax.Var("_", nothing)
            bindings.append(relax.VarBinding(binding_var, value))
        else:
            bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.BindingBlock(bindings)], _substituted(function.body.body, written))
    module = tvm.IRModule(dict(module.functions.items()))
    module["main"] = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    return module


def _substituted(expr: relax.Expr, environment: dict[relax.Var, relax.Expr]) -> relax.Expr:
    """Replaces the variables of `expr` that are in `environment`."""
    if isinstance(expr, relax.Var):
        return environment.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_substituted(field, environment) for field in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_substituted(expr.tuple_value, environment), expr.index)
    if isinstance(expr, relax.Call):
        arguments = [_substituted(argument, environment) for argument in expr.args]
        return relax.Call(expr.op, arguments, expr.attrs, expr.ty_args)
    return expr


def lift(module: tvm.IRModule) -> tuple[tvm.IRModule, tuple[Slot, ...]]:
    """Makes every activation an additional parameter of `main`. Returns the module and the slots in the arena.

    Requires: `main` allocates storage and tensors of constant sizes with `relax.memory`.
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
    """Assigns an offset in the arena to each storage, and a parameter to each tensor. Equal slots share a parameter."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.params: list[relax.Var] = []
        self._places: dict[relax.Var, int] = {}
        self._found: dict[Slot, relax.Var] = {}
        self._end = 0

    def rewritten(self, block: relax.BindingBlock) -> list[relax.VarBinding]:
        """Returns the bindings of the block without allocations."""
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
