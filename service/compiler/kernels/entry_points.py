"""The calling convention of compiled functions: `int32_t f(void *const *operands)`.

TVM's own convention passes tensors with their shapes, types and strides, and every function checks all of them on every
call. For small layers, that takes longer than the computation. Shapes are known when a model is compiled, and the call
plan is checked when it is loaded, so a function only needs the addresses of its operands.
"""

from __future__ import annotations

import tvm
from tvm import tirx

_CPU = 1  # DLPack's kDLCPU


def with_plain_operands(function: tirx.PrimFunc, symbol: str) -> tirx.PrimFunc:
    """Converts `function` to the calling convention of this module, exported as `symbol`.

    Requires: the parameters are buffers of constant sizes that do not overlap. The function returns nothing.
    Ensures: the converted function returns 0, or an error code if it cannot start threads or allocate its workspace.
    """
    operands = tirx.Var("operands", "handle")
    addresses = tirx.decl_buffer((max(1, len(function.params)),), "uint64", "addresses")
    body: list[tirx.Stmt] = [tirx.DeclBuffer(addresses, data=tirx.reinterpret(addresses.data.ty, operands))]
    for number, parameter in enumerate(function.params):
        address = tirx.BufferLoad(addresses, [tirx.const(number, "int32")])
        body.append(tirx.DeclBuffer(parameter, data=tirx.reinterpret(parameter.data.ty, address)))
    # TVM makes a separate function of this scope. The pointer parameters of that function are marked as not aliasing.
    computation = tvm.ir.StringImm(f"{symbol}_compute_")
    scope = tirx.AttrStmt(tirx.const(0, "int32"), "compute_scope", computation, function.body)
    for name, value in (("device_type", _CPU), ("device_id", 0)):  # the device on which a workspace is allocated
        scope = tirx.AttrStmt("default", name, tirx.const(value, "int32"), scope)
    body.append(scope)
    body.append(tirx.stmt.Return(tirx.const(0, "int32")))
    attributes = {
        "global_symbol": symbol,
        "calling_conv": tvm.ir.CallingConv.C_PACKED_FUNC,
        "target": function.attrs["target"].host,
        "tirx.noalias": True,
    }
    made = tirx.PrimFunc([operands], tirx.SeqStmt(body), tvm.ir.PrimType("int32"))
    for name, value in attributes.items():
        made = made.with_attr(name, value)
    return made


@tvm.transform.module_pass(opt_level=0, name="PlainOperands")  # type: ignore[untyped-decorator]
def make_entry_points(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
    """Gives every exported function (`global_symbol`) the calling convention of this module."""
    functions = {}
    for variable, function in module.functions.items():
        symbol = function.attrs.get("global_symbol") if function.attrs else None
        is_exported = isinstance(function, tirx.PrimFunc) and symbol is not None
        functions[variable] = with_plain_operands(function, str(symbol)) if is_exported else function
    return tvm.IRModule(functions, attrs=module.attrs)
