"""Replaces every call of a tensor program by GPU kernels, one launch for each stage of the program.

Requires: canonical Relax after fusion (`codegen.FUSE`).
Ensures: the module contains no tensor program. The kernels are in `Lowered`. Buffers between the stages of a program
are tensors of `main`, so that TVM plans their memory together with all other tensors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from service.compiler.kernels.kernel import Kernel
from service.compiler.lowering.gpu import functions
from service.compiler.lowering.gpu.functions import Printed
from service.compiler.lowering.gpu.stages import inlined, stages_of
from service.compiler.qnn import graph
from service.core.errors import Unsupported

_CALL = "relax.call_tir"
_NUMBER = re.compile(r"\d+$")
_OF_NO_SYMBOL = re.compile(r"[^a-z0-9_]+")
_MOST_LETTERS = 80  # at most this many characters of a function's name become part of its symbol


@dataclass
class Lowered:
    """A module without tensor programs.

    Attributes:
        kernels: maps each symbol to its kernel.
        inexact: maps the symbol of a kernel to the functions of `spelling.INEXACT` that it calls.
    """

    module: tvm.IRModule
    kernels: dict[str, Kernel] = field(default_factory=dict)
    inexact: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Program:
    """The kernels that compute a tensor program, each with the buffers that it reads and writes."""

    function: tirx.PrimFunc
    launches: tuple[tuple[Kernel, Printed], ...]


def lower(module: tvm.IRModule) -> Lowered:
    """Replaces the tensor programs of `module` by kernels.

    Raises:
        Unsupported: a tensor program contains something that `printer.Printer` does not support.
    """
    lowered = Lowered(module)
    programs: dict[str, _Program] = {}

    def program(name: str) -> _Program:
        if name not in programs:
            programs[name] = _lower_program(name, module[name], lowered)
        return programs[name]

    def call(
        builder: relax.BlockBuilder, call: relax.Call, args: list[relax.Expr], operation: graph.Found
    ) -> relax.Expr:
        if getattr(call.op, "name", "") != _CALL:
            return graph.with_args(call, args)
        return _emit_calls(builder, program(str(args[0].name_hint)), list(args[1].fields), call.ty_args[0])

    lowered.module = graph.rewrite(module, call)
    return lowered


def _lower_program(name: str, function: tirx.PrimFunc, lowered: Lowered) -> _Program:
    try:
        function = inlined(function)
        nests = stages_of(function)
        printed = [functions.of_whole(function)] if nests is None else [functions.of_nest(nest) for nest in nests]
    except Unsupported as error:
        raise Unsupported(f"{name}: {error.message}", hint="compile the model for a CPU") from error
    except RecursionError as error:
        raise Unsupported(f"{name}: its expressions are nested too deep", hint="compile the model for a CPU") from error
    family = "plain_" + _OF_NO_SYMBOL.sub("_", _NUMBER.sub("", name.lower())).strip("_")[:_MOST_LETTERS]
    launches = tuple((Kernel(family, each.function, (), 0), each) for each in printed)
    for kernel, each in launches:
        lowered.kernels[kernel.symbol] = kernel
        if each.inexact:
            lowered.inexact[kernel.symbol] = sorted(each.inexact)
    return _Program(function, launches)


def _emit_calls(
    builder: relax.BlockBuilder, program: _Program, operands: list[relax.Expr], result: relax.Type
) -> relax.Expr:
    """Emits the calls of the kernels of `program`. Returns its results, which are the last parameters of the
    program."""
    tensors: dict[tirx.Var, relax.Expr] = dict(zip(program.function.params, operands, strict=False))
    for kernel, printed in program.launches:
        types = [relax.TensorType([int(size) for size in each.shape], str(each.dtype)) for each in printed.outputs]
        inputs = relax.Tuple([tensors[each] for each in printed.inputs])
        made = builder.emit(relax.call_dps_packed(kernel.symbol, inputs, types if len(types) > 1 else types[0]))
        for index, each in enumerate(printed.outputs):
            tensors[each] = builder.emit(relax.TupleGetItem(made, index)) if len(types) > 1 else made
    results = [tensors[each] for each in program.function.params[len(operands) :]]
    return relax.Tuple(results) if isinstance(result, relax.TupleType) else results[0]
