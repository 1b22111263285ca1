"""The pass `select`: replaces groups of operators by kernel calls, and lays out the tensors between them.

Requires: a model of `qnn.*` operators.

Ensures: every group that the kernel library accepts is a call of its kernel on flat buffers. Groups that the library
declines are not changed and use plain tensors, and the report contains the reason. No layout change is needed between
two kernels: a kernel writes a tensor with the largest halo that any reader needs. A part of a concatenation is written
directly into the concatenated tensor if it needs no rescaling and begins at a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.compiler.kernels.group import Group, KernelLibrary, LstmKernel, PlainKernel, image_shape, shape_of
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import BIAS, Image, laid_out
from service.compiler.kernels.matrices import Matrices, Strided
from service.compiler.kernels.moves import Memory, Move
from service.compiler.kernels.rows import Access, Output, Region
from service.compiler.locating import declining, located
from service.compiler.qnn import coverage, graph
from service.compiler.qnn.operation import value_of
from service.compiler.select.groups import Model
from service.compiler.select.moves import elements_of
from service.compiler.select.plan import Plan, padded
from service.compiler.select.recurrent import Recurrent
from service.compiler.select.rows import in_regions
from service.compiler.select.selection import Selection
from service.core.errors import InternalError


def select(module: tvm.IRModule, library: KernelLibrary | None) -> Selection:
    """Replaces operators of `module` by calls of the kernels in `library`."""
    if library is None:
        return Selection(module)
    refused: dict[str, str] = {}
    while True:
        try:
            return _selected(module, library, refused)
        except _Refused as error:
            if error.name in refused:
                raise InternalError(f"a kernel was refused twice: {error.reason}", tensor=error.name) from error
            refused[error.name] = error.reason


def _selected(module: tvm.IRModule, library: KernelLibrary, refused: Mapping[str, str]) -> Selection:
    """Selects kernels, except for the groups in `refused`, which maps the name of a group's output to the reason.

    Raises:
        _Refused: a planned kernel could not be created.
    """
    model = Model(graph.main_of(module), library.block)
    function, regions = in_regions(model.function, library.check_row_operator, model.taken)
    regions = [region for region in regions if str(region.steps[-1].var.name) not in refused]
    model = Model(function, library.block)
    model.leave(regions)
    plan = Plan(model, library, regions, refused)
    return _Emission(model, library, plan).run()


class _Refused(Exception):
    """A planned kernel could not be created. The selection is repeated without it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


@contextmanager
def _making(op: str, tensor: str) -> Iterator[None]:
    """Adds the operator and the tensor to errors that the block raises while it creates a kernel.

    Raises:
        _Refused: the block raised `Declined`.
    """
    try:
        with located(op, tensor), declining():
            yield
    except Declined as error:
        raise _Refused(tensor, str(error)) from error


class _Emission:
    """Writes the new function, binding by binding. A layout change is emitted just before the first use of its result.

    If several kernels write parts of one tensor, the first one allocates the memory, and the others write into it.
    """

    def __init__(self, model: Model, library: KernelLibrary, plan: Plan) -> None:
        self.model, self.library, self.plan = model, library, plan
        self.builder = relax.BlockBuilder()
        self._plain: dict[relax.Var, relax.Expr] = {}
        self._images: dict[tuple[relax.Var, bool], relax.Var] = {}
        self._rows: dict[
            relax.Var, tuple[relax.Var, int]
        ] = {}  # maps a hidden state to (tensor of the hidden states of all steps, number of the step)
        self._shared: dict[
            relax.Var, relax.Var
        ] = {}  # maps a tensor that has other tensors in its memory to the variable of the memory after the last write
        self.selection = Selection(tvm.IRModule(), declined=plan.declined)
        self._macs = coverage.macs_by_operator(model.function)

    def run(self) -> Selection:
        function = self.model.function
        params = [relax.Var(param.name, param.ty) for param in function.params]
        self._plain.update(zip(function.params, params, strict=True))
        accepted = [self.model.groups[var] for var in (*self.plan.demands, *self.plan.products, *self.plan.plain)]
        inside = set().union(*(self.model.parts(group) for group in accepted)) if accepted else set()
        # The plain tensors of these variables are emitted only if something needs them.
        later = {*self.model.views, *self.model.seen, *self.plan.quantized, *self.model.channels_last}
        later |= set(self.plan.moving.moves)
        later |= {var for sequence, _ in self.plan.recurrent.values() for var in sequence.variables}
        inside |= {step.var for region in self.plan.regions.values() for step in region.steps}
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for var, value in self.model.bindings:
                    group = self.model.groups.get(var)
                    with _making(graph.name_of(value) if group is None else group.core.name, str(var.name)):
                        self._bind(var, value, plain=var not in inside and var not in later)
                results = [self._with_plain(result) for result in graph.results_of(function)]
                outputs = [self.builder.emit_output(result) for result in results]
            self.builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        self.selection.module = self.builder.get()
        return self.selection

    def _bind(self, var: relax.Var, value: relax.Expr, *, plain: bool) -> None:
        """Emits the call of the kernel that computes `var`, if there is one, or the operator itself if `plain`."""
        if var in self.plan.regions:
            self._call_region(self.plan.regions[var])
        elif var in self.plan.recurrent:
            self._call_recurrent(*self.plan.recurrent[var])
        elif var in self.plan.demands:
            self._call(self.model.groups[var])
        elif var in self.plan.products:
            self._call_product(self.model.groups[var])
        elif var in self.plan.plain:
            self._call_plain(self.model.groups[var], self.plan.plain[var])
        elif plain:
            self._emit_plain(var, value)

    def _call(self, group: Group) -> None:
        demands = self.plan.demands[group.output]
        sources: list[Image] = []
        operands: list[relax.Expr] = []
        for var, demand in zip(group.inputs, demands, strict=True):
            root, padding, _ = self.plan.root(var)
            image = self.plan.part(self.plan.image(root, packed=demand.packed), var)
            sources.append(padded(image, padding))
            operands.append(self._image(root, packed=demand.packed))
        placed = self._placed(group)
        if len(placed) == len(sources):  # all inputs are already in place
            self._images[group.output, False] = self._shared[self.plan.memory(group.output)]
            return
        macs = sum(self._macs.get(var, 0) for var in (*self.model.parts(group), group.output))
        if group.wide:
            kernel = self.library.kernel(group, sources, self.plan.contiguous(group.output))
            self._plain[group.output] = self._emit_contiguous(group, kernel, operands, macs)
            return
        destination = self.plan.image(group.output, packed=False)
        kernel = self.library.kernel(group, sources, destination, placed)
        operands = [operand for index, operand in enumerate(operands) if index not in placed]
        self._write(group.output, kernel, operands, group.name, group.kind, macs=macs)

    def _call_plain(self, group: Group, made: PlainKernel) -> None:
        sources = [self.plain(var) for var in group.inputs]
        if made.padding:
            (source,) = sources
            top, left, bottom, right = made.padding.sides
            widths = [0, 0, top, bottom, left, right, 0, 0]
            name = f"{group.inputs[0].name}_padded"
            sources = [self.builder.emit(relax.op.nn.pad(source, widths, pad_value=made.fill), name)]
            self.selection.leave(f"{group.name}_padded", "nn.pad", "the kernel needs padded tensors")
        flat = [self._reshaped(source, [math.prod(shape_of(source))]) for source in sources]
        macs = sum(self._macs.get(part, 0) for part in (*self.model.parts(group), group.output))
        self._plain[group.output] = self._emit_contiguous(group, made.kernel, flat, macs)

    def _call_product(self, group: Group) -> None:
        """Emits a product. Operands that are images are read in place if the rows of their matrices consist of whole
        blocks.
        """
        assert group.matrices is not None
        (lhs, rhs), (*views, out) = group.inputs, group.matrices
        transposed = views[1].of_columns
        seen = (lhs, views[0]), (rhs, views[1].transposed if transposed else views[1])
        found = [self._matrices(*each) for each in seen]
        operands = [operand for operand, _ in found]
        macs = sum(self._macs.get(part, 0) for part in self.model.parts(group))
        destination = None if group.wide else self.plan.matrices(group.output, out, written=True)
        kernel = self.library.product(
            group, found[0][1], found[1][1], destination or self._contiguous(group.output, out), transposed=transposed
        )
        if destination is None:
            self._plain[group.output] = self._emit_contiguous(group, kernel, operands, macs)
        else:
            self._write(group.output, kernel, operands, group.name, group.kind, macs=macs)

    def _matrices(self, var: relax.Var, view: Strided) -> tuple[relax.Expr, Matrices]:
        """Returns the operand of a product and its matrices: the image `var` if there is one, else the plain tensor."""
        found = self.plan.matrices(var, view)
        if found is not None:
            return self._image(self.plan.root(var)[0], packed=False), found
        return self._reshaped(self.plain(var), [elements_of(var)]), self._contiguous(var, view)

    def _contiguous(self, var: relax.Var, view: Strided) -> Matrices:
        return Matrices.contiguous(view, elements_of(var), str(var.ty.dtype), self.library.block)

    def _call_region(self, region: Region) -> None:
        sources, operands = [], []
        for var in region.inputs:
            root, padding, _ = self.plan.root(var)
            whole = (
                not padding and self.plan.is_whole(var) and image_shape(shape_of(var)) == image_shape(shape_of(root))
            )
            if whole and ((root, False) in self._images or self.plan.moving.moves_image(root)):
                image = self._image(root, packed=False)
                sources.append(Access.of_image(self.plan.image(root, packed=False), shape_of(var)))
                operands.append(image)
            else:
                size = elements_of(var)
                sources.append(Access(str(var.ty.dtype), size, ()))
                operands.append(self._reshaped(self.plain(var), [size]))
        outputs = [self._output(region, var) for var in region.outputs]
        made = self.library.rows(region, sources, outputs)
        both = list(zip(region.outputs, outputs, strict=True))
        types = [relax.TensorType([output.access.size], output.access.dtype) for _, output in both]
        if made.memory:
            types.append(relax.TensorType([made.memory], "float32"))
        alone = types[0] if len(types) == 1 else types
        written = self._emit(made.kernel, operands, region.name, region.operators, alone)
        for index, (var, output) in enumerate(both):
            result = written if len(types) == 1 else self.builder.emit(relax.TupleGetItem(written, index))
            if output.image is None:
                self._plain[var] = self._reshaped(result, shape_of(var))
            else:
                self._images[var, False] = self._shared[var] = result

    def _output(self, region: Region, var: relax.Var) -> Output:
        shape = shape_of(var)
        outer = [axis for axis, extent in enumerate(shape[:-1]) if extent != 1]
        if var in self.plan.images:
            image = self.plan.image(var, packed=False)
            access = Access.of_image(image, shape).along(outer)
            return Output(access, image, self.plan.fill(var, packed=False))
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in outer)
        return Output(Access(str(var.ty.dtype), math.prod(shape), strides))

    def _call_recurrent(self, sequence: Recurrent, made: LstmKernel) -> None:
        """Emits all steps as one call. The output has a row for each step's hidden state. A row is sliced from the
        output only if something reads it.
        """
        first, last = sequence.steps[0], sequence.steps[-1]
        operands = [self._reshaped(self.plain(var), [elements_of(var)]) for var in (sequence.seen, *first.before)]
        types = [relax.TensorType([size], dtype) for size, dtype in made.outputs]
        macs = sum(self._macs.get(step.sums, 0) for step in sequence.steps)
        written = self._emit(made.kernel, operands, sequence.name, "lstm", types, macs=macs)
        states, cell = (self.builder.emit(relax.TupleGetItem(written, index)) for index in range(2))
        self._plain[last.cell] = self._reshaped(cell, shape_of(last.cell))
        if sequence.joined is not None:
            self._plain[sequence.joined] = self._reshaped(states, shape_of(sequence.joined))
        self._rows.update({step.hidden: (states, index) for index, step in enumerate(sequence.steps)})

    def _row(self, var: relax.Var) -> relax.Expr:
        states, position = self._rows[var]
        size = elements_of(var)
        row = self.builder.emit(
            relax.op.strided_slice(states, [0], [position * size], [(position + 1) * size]), str(var.name)
        )
        self.selection.leave(str(var.name), "strided_slice", "the kernel writes the states of all steps")
        return self._reshaped(row, shape_of(var))

    def _emit_contiguous(self, group: Group, kernel: Kernel, operands: Sequence[relax.Expr], macs: int) -> relax.Expr:
        """Emits a call of `kernel`, which writes a contiguous tensor."""
        out_type = _shaped(group.output, str(group.output.ty.dtype))
        return self._emit(kernel, operands, group.name, group.kind, out_type, macs=macs)

    def _placed(self, group: Group) -> list[int]:
        """Returns the indices of the inputs that are already in the memory of the output.

        If several inputs are the same tensor, only one of them can be in that memory; the other ones must be copied.
        """
        placed: list[int] = []
        for index, (var, block) in enumerate(zip(group.inputs, self.library.places(group), strict=True)):
            root, _, _ = self.plan.root(var)
            if (
                block is not None
                and self.plan.placements.get(root) == (group.output, block)
                and self.plan.is_whole(var)
            ):
                placed.append(index)
        if group.core.name == "qnn.concatenate":
            self.selection.concatenations.append(
                {"layer": group.name, "parts": len(group.inputs), "in_place": len(placed)}
            )
        return placed

    def _write(
        self, root: relax.Var, kernel: Kernel, operands: Sequence[relax.Expr], name: str, kind: str, macs: int = 0
    ) -> None:
        """Emits a kernel that writes `root` as an image, to its own memory or to the memory of a tensor that contains
        it.
        """
        memory = self.plan.memory(root)
        written = self._emit(kernel, operands, name, kind, macs=macs, into=self._shared.get(memory))
        self._images[root, False] = self._shared[memory] = written

    def _image(self, root: relax.Var, *, packed: bool) -> relax.Expr:
        """Returns `root` as an image. If no kernel wrote the image, emits the conversion from the plain tensor."""
        if root in self.model.constants:
            image, value = self.plan.image(root, packed=packed), self.model.constants[root]
            stored = (value.astype(np.int16) + BIAS[str(value.dtype)]).astype(np.uint8)
            return relax.const(laid_out(image, stored.reshape(image.shape)))
        if (root, packed) not in self._images and not packed:
            self._write_moved(root)
        if (root, packed) not in self._images:
            entry, image = self.plan.entry(root), self.plan.image(root, packed=packed)
            kind = "+".join([*(["permute"] if entry.channels_first else []), "quantize" if entry.quantize else "pack"])
            dtype, fill = str(entry.source.ty.dtype), self._fill(root, packed=packed)
            kernel = self.library.pack(image, dtype, fill, entry.quantize, channels_first=entry.channels_first)
            flat = self._reshaped(self.plain(entry.source), [elements_of(root)])
            if packed:
                self._images[root, packed] = self._emit(kernel, [flat], f"{root.name}_image", kind)
            else:
                self._write(root, kernel, [flat], f"{root.name}_image", kind)
        return self._images[root, packed]

    def _fill(self, root: relax.Var, *, packed: bool = False) -> int:
        fill = self.plan.fill(root, packed=packed)
        assert isinstance(fill, int)  # only regions write halos with values that are computed at run time
        return fill

    def _write_moved(self, root: relax.Var) -> None:
        """Emits a move kernel that writes `root` as an image, if `root` consists of elements of other tensors."""
        if not self.plan.moving.moves_image(root):
            return
        to, fill = Memory.of_image(self.plan.image(root, packed=False), str(root.ty.dtype)), self._fill(root)
        made = self._move_kernel(root, to, fill)
        if made is not None:
            kernel, operands, operators = made
            self._write(root, kernel, operands, str(root.name), operators)

    def _move_kernel(self, var: relax.Var, to: Memory, fill: int = 0) -> tuple[Kernel, list[relax.Expr], str] | None:
        """Returns the kernel that copies the elements of `var` to the memory `to`, its operands, and the names of the
        moves that it replaces. Returns None if no move kernel computes `var`.
        """
        movement, moving = self.plan.moving.movement(var), self.plan.moving
        if movement is None or (movement.moves_nothing and to.image is None):
            return None
        for images in (True, False):
            with suppress(Declined):
                sources, tables = moving.sources(movement, images=images), moving.tables(movement)
                kernel = self.library.move(Move(sources, tables, to, movement.elements, fill))
                operands = [
                    self._operand(part.source, each) for part, each in zip(movement.parts, sources, strict=True)
                ]
                return kernel, operands, movement.operators
        return None

    def _operand(self, source: relax.Expr, memory: Memory) -> relax.Expr:
        """Returns a constant or a tensor as an operand of a move kernel."""
        if memory.image is not None:
            return self._image(self.plan.root(source)[0], packed=False)
        constant = value_of(source)
        if constant is not None:
            return relax.const(constant.reshape(-1), str(constant.dtype))
        return self._reshaped(self.plain(source), [memory.size])

    def plain(self, var: relax.Var) -> relax.Expr:
        """Returns `var` as a plain tensor."""
        if var not in self._plain:
            if (var, False) in self._images:
                self._plain[var] = self._unpacked(var, var)
            elif var in self._rows:
                self._plain[var] = self._row(var)
            elif not self.plan.is_whole(var) and (self.plan.root(var)[0], False) in self._images:
                self._plain[var] = self._unpacked(self.plan.root(var)[0], var)
            elif (
                not self._unpacks(var)
                and (made := self._move_kernel(var, Memory.contiguous(shape_of(var), str(var.ty.dtype)))) is not None
            ):
                kernel, operands, operators = made
                out_type = _shaped(var, str(var.ty.dtype))
                self._plain[var] = self._emit(kernel, operands, str(var.name), operators, out_type)
            else:  # `run` did not emit the binding
                value = next(value for bound, value in self.model.bindings if bound.same_as(var))
                self._emit_plain(var, value)
        return self._plain[var]

    def _unpacked(self, image: relax.Var, var: relax.Var, *, channels_first: bool = False) -> relax.Expr:
        """Emits the conversion of `image`, which a kernel wrote, to the plain tensor `var`."""
        dtype = str(image.ty.dtype)
        shown = self.plan.part(self.plan.image(image, packed=False), var)
        kernel = self.library.unpack(shown, dtype, channels_first=channels_first)
        kind = "unpack+permute" if channels_first else "unpack"
        return self._emit(kernel, [self._images[image, False]], f"{var.name}_plain", kind, _shaped(var, dtype))

    def _unpacks(self, var: relax.Var) -> bool:
        """Returns true if a kernel converts an image to the `[N, C, H, W]` tensor `var`."""
        image = self.model.channels_first.get(var)
        return image is not None and (image, False) in self._images and image not in self._plain

    def _emit_plain(self, var: relax.Var, value: relax.Expr) -> None:
        if self._unpacks(var):
            self._plain[var] = self._unpacked(self.model.channels_first[var], var, channels_first=True)
            return
        self._plain[var] = graph.emit(self.builder, self._with_plain(value), var.name)
        called = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
        if called in ("", "relax.reshape"):
            return  # the binding only gives an existing tensor another name
        reason = self.plan.reasons.get(var, "no kernel computes this operator")
        operators = called.removeprefix("relax.").removeprefix("qnn.")
        self.selection.leave(str(var.name), operators, reason, self._macs.get(var, 0))

    def _with_plain(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var):
            return self.plain(expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self._with_plain(part) for part in expr.fields])
        if isinstance(expr, relax.Call):
            return graph.with_args(expr, [self._with_plain(arg) for arg in expr.args])
        return expr

    def _reshaped(self, expr: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        if shape_of(expr) == tuple(shape):
            return expr
        return self.builder.emit(relax.op.reshape(expr, list(shape)))

    def _emit(
        self,
        kernel: Kernel,
        operands: Sequence[relax.Expr],
        name: str,
        kind: str,
        out_type: Any = None,
        *,
        macs: int = 0,
        into: relax.Var | None = None,
    ) -> relax.Var:
        """Emits a call of `kernel`. The kernel writes to new memory, or to a part of the memory `into`."""
        self.selection.call(kernel, name, kind, macs)
        constants = [relax.const(array, str(array.dtype)) for array in kernel.constants]
        out_type = out_type or relax.TensorType([kernel.output_bytes], "uint8")
        arguments = [*operands, *constants]
        if into is None:
            return self.builder.emit(relax.call_dps_packed(kernel.symbol, relax.Tuple(arguments), out_type), name)
        position = len(arguments)
        call = relax.op.call_inplace_packed(kernel.symbol, *arguments, into, inplace_indices=position, ty_args=out_type)
        return self.builder.emit(call, name)


def _shaped(var: relax.Var, dtype: str) -> relax.TensorType:
    """Returns the type of a contiguous output that has the shape of `var`.

    A flat output would need a reshape, which would copy it.
    """
    return relax.TensorType(list(shape_of(var)), dtype)
