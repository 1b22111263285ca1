"""Device functions of tensor programs.

Each thread computes one element of a nest of loops (`stages.Nest`). Consecutive threads of a warp compute neighbors
along the innermost axis. A thread adds all terms of its element in order, so a reduction to few elements uses few
threads and is slow. A program that does not consist of such nests runs in a single thread, statement by statement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from service.compiler.kernels.cuda.text import kernel_function, translation_unit
from service.compiler.kernels.kernel import DeviceFunction
from service.compiler.lowering.gpu.printer import Printer
from service.compiler.lowering.gpu.spelling import TYPES
from service.compiler.lowering.gpu.stages import Nest
from service.core.artifacts.call_plan import Launch
from service.core.errors import Unsupported

_WARP = 32
_THREADS = 256  # the threads of a thread block
_FEW = 1 << 15  # with fewer elements, a thread block is one warp, so that all multiprocessors of a large GPU are used
_MOST_ELEMENTS = (1 << 32) - _THREADS


@dataclass(frozen=True)
class Printed:
    """A device function and its operands.

    Attributes:
        inputs: the buffers that the function only reads.
        outputs: the buffers that the function writes, including scratch memory.
        inexact: the functions of `spelling.INEXACT` that the function calls.
    """

    function: DeviceFunction
    inputs: tuple[tirx.Var, ...]
    outputs: tuple[tirx.Var, ...]
    inexact: frozenset[str]


def of_nest(nest: Nest) -> Printed:
    """Writes the device function of a nest.

    Raises:
        Unsupported: `Printer.statement` does not support a statement, or the nest has too many elements.
    """
    printer = Printer()
    elements = math.prod(extent for _, extent in nest.spatial)
    if elements > _MOST_ELEMENTS:
        raise Unsupported(f"GPU kernels cannot compute a tensor of {elements} elements")
    threads = _THREADS if elements > _FEW else _WARP
    printer.line(f"const u32 place = blockIdx.x * {threads}u + threadIdx.x;")
    printer.line(f"if (place >= {elements}u) return;")
    stride = max(1, elements)
    for variable, extent in nest.spatial:
        rest = "place" if stride >= elements else f"place % {stride}u"
        stride //= max(1, extent)
        printer.define(variable, rest if stride == 1 else f"{rest} / {stride}u")
    for axis, value in nest.axes:
        if not any(value.same_as(variable) for variable, _ in nest.reduced):
            printer.alias(axis, printer.value(value))
    if nest.init is None:
        printer.statement(nest.body)
    else:
        _reduce(printer, nest)
    return _printed(printer, max(1, -(-elements // threads)), threads)


def _reduce(printer: Printer, nest: Nest) -> None:
    for store in nest.stores:
        printer.hold(store)
    assert nest.init is not None
    printer.statement(nest.init)
    _loops(printer, nest, list(nest.reduced))
    printer.release()


def _loops(printer: Printer, nest: Nest, loops: list[tuple[tirx.Var, int]]) -> None:
    if loops:
        (variable, extent), *inner = loops
        with printer.loop(variable, str(extent)):
            _loops(printer, nest, inner)
        return
    for axis, value in nest.axes:
        if any(value.same_as(variable) for variable, _ in nest.reduced):
            printer.alias(axis, printer.value(value))
    printer.statement(nest.body)


def of_whole(function: tirx.PrimFunc) -> Printed:
    """Writes the device function of a whole program, which runs in one thread.

    Raises:
        Unsupported: `Printer.statement` does not support a statement.
    """
    printer = Printer()
    printer.statement(function.body)
    return _printed(printer, 1, 1)


def _printed(printer: Printer, blocks: int, threads: int) -> Printed:
    outputs = tuple(printer.stored)
    inputs = tuple(buffer for buffer in printer.loaded if not any(buffer.same_as(each) for each in outputs))
    parameters = [f"const {_element(each)}* __restrict__ {printer.buffer_name(each)}" for each in inputs]
    parameters += [f"{_element(each)}* __restrict__ {printer.buffer_name(each)}" for each in outputs]
    body = ["using namespace octet;", *(line.removeprefix("  ") for line in printer.lines)]
    text = translation_unit("plain.cuh", kernel_function(threads, parameters, body))
    launch = Launch((blocks, 1, 1), (threads, 1, 1), 0)
    return Printed(DeviceFunction(text, launch), inputs, outputs, frozenset(printer.inexact))


def _element(buffer: tirx.Var) -> str:
    name = TYPES[str(buffer.dtype)]
    return f"octet::{name}" if name[-1].isdigit() else name
