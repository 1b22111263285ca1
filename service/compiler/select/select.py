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
from contextlib import contextmanager

import tvm
from tvm import relax

from service.compiler.kernels.group import Group, KernelLibrary, LstmKernel, PlainKernel, image_shape, shape_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import Image
from service.compiler.kernels.matrices import Matrices, Strided
from service.compiler.kernels.rows import Access, Output, Region
from service.compiler.locating import declining, located
from service.compiler.qnn import graph
from service.compiler.qnn.lengths.axes import Axes
from service.compiler.select.columns import leaves_out_columns
from service.compiler.select.edges import edges_of
from service.compiler.select.groups import Model
from service.compiler.select.moves import elements_of
from service.compiler.select.outputs import SCRATCH
from service.compiler.select.plan import Plan, padded
from service.compiler.select.recurrent import Recurrent
from service.compiler.select.rows import in_regions
from service.compiler.select.selection import Selection
from service.compiler.select.tensors import Tensors
from service.core.errors import InternalError


def select(module: tvm.IRModule, library: KernelLibrary | None, varying: Sequence[Axes] = ()) -> Selection:
    """Replaces operators of `module` by calls of the kernels in `library`.

    Args:
        varying: for each input, the axes that have the length that the last parameter contains. Empty if the inputs
            have one length.
    """
    if library is None:
        return Selection(module)
    refused: dict[str, str] = {}
    while True:
        try:
            return _selected(module, library, refused, varying)
        except _Refused as error:
            if error.name in refused:
                raise InternalError(f"a kernel was refused twice: {error.reason}", tensor=error.name) from error
            refused[error.name] = error.reason


def _selected(
    module: tvm.IRModule, library: KernelLibrary, refused: Mapping[str, str], varying: Sequence[Axes]
) -> Selection:
    """Selects kernels, except for the groups in `refused`, which maps the name of a group's output to the reason.

    Raises:
        _Refused: a planned kernel could not be created.
    """
    model = Model(graph.main_of(module), library.block, varying)
    function, regions = in_regions(model.function, library.check_row_operator, model.taken)
    regions = [region for region in regions if str(region.steps[-1].var.name) not in refused]
    model = Model(function, library.block, varying)
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
    """Writes the new function, binding by binding: calls kernels, and keeps the operators that no kernel computes."""

    def __init__(self, model: Model, library: KernelLibrary, plan: Plan) -> None:
        self.model, self.library, self.plan = model, library, plan
        self.tensors = Tensors(model, library, plan)

    def run(self) -> Selection:
        function = self.model.function
        params = [relax.Var(param.name, param.ty) for param in function.params]
        self.tensors.set_params(function.params, params)
        accepted = [self.model.groups[var] for var in (*self.plan.demands, *self.plan.products, *self.plan.plain)]
        inside = set().union(*(self.model.parts(group) for group in accepted)) if accepted else set()
        # The plain tensors of these variables are emitted only if something needs them.
        later = {*self.model.views, *self.model.seen, *self.plan.quantized, *self.model.channels_last}
        later |= set(self.plan.moving.moves)
        later |= {var for sequence, _ in self.plan.recurrent.values() for var in sequence.variables}
        inside |= {step.var for region in self.plan.regions.values() for step in region.steps}
        with self.tensors.builder.function("main", params):
            with self.tensors.builder.dataflow():
                for var, value in self.model.bindings:
                    group = self.model.groups.get(var)
                    with _making(graph.name_of(value) if group is None else group.core.name, str(var.name)):
                        self._bind(var, value, plain=var not in inside and var not in later)
                results = [self.tensors.with_plain(result) for result in graph.results_of(function)]
                outputs = [self.tensors.builder.emit_output(result) for result in results]
            self.tensors.builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        selection = self.tensors.selection
        selection.module = self.tensors.builder.get()
        selection.edges = edges_of(selection)
        return selection

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
            self.tensors.emit_plain(var, value)

    def _call(self, group: Group) -> None:
        demands = self.plan.demands[group.output]
        sources: list[Image] = []
        operands: list[relax.Expr] = []
        for var, demand in zip(group.inputs, demands, strict=True):
            root, padding, _ = self.plan.root(var)
            image = self.plan.part(self.plan.image(root, packed=demand.packed), var)
            sources.append(padded(image, padding))
            operands.append(self.tensors.image(root, packed=demand.packed))
        placed = self._placed(group)
        if len(placed) == len(sources):  # all inputs are already in place
            self.tensors.set_written_in_place(group.output)
            return
        macs = sum(self.tensors.macs.get(var, 0) for var in (*self.model.parts(group), group.output))
        if group.wide:
            kernel = self.library.kernel(group, sources, self.plan.contiguous(group.output))
            self.tensors.emit_contiguous(group, kernel, operands, macs)
            return
        destination = self.plan.image(group.output, packed=False)
        kernel = self.library.kernel(group, sources, destination, placed)
        operands = [operand for index, operand in enumerate(operands) if index not in placed]
        self.tensors.write(group.output, kernel, operands, group.name, group.kind, macs=macs)

    def _call_plain(self, group: Group, made: PlainKernel) -> None:
        sources = [self.tensors.plain(var) for var in group.inputs]
        if made.padding:
            (source,) = sources
            top, left, bottom, right = made.padding.sides
            widths = [0, 0, top, bottom, left, right, 0, 0]
            name = f"{group.inputs[0].name}_padded"
            sources = [self.tensors.builder.emit(relax.op.nn.pad(source, widths, pad_value=made.fill), name)]
            self.tensors.selection.leave(f"{group.name}_padded", "nn.pad", "the kernel needs padded tensors")
        flat = [self.tensors.reshaped(source, [math.prod(shape_of(source))]) for source in sources]
        macs = sum(self.tensors.macs.get(part, 0) for part in (*self.model.parts(group), group.output))
        self.tensors.emit_contiguous(group, made.kernel, [*flat, *self._length_of(group)], macs)

    def _call_product(self, group: Group) -> None:
        """Emits a product. Operands that are images are read in place if the rows of their matrices consist of whole
        blocks.
        """
        assert group.matrices is not None
        (lhs, rhs), (*views, out) = group.inputs, group.matrices
        transposed = views[1].of_columns
        seen = (lhs, views[0]), (rhs, views[1].transposed if transposed else views[1])
        found = [self._matrices(*each) for each in seen]
        operands = [*(operand for operand, _ in found), *self._length_of(group)]
        macs = sum(self.tensors.macs.get(part, 0) for part in self.model.parts(group))
        destination = None if group.wide else self.plan.matrices(group.output, out, written=True)
        kernel = self.library.product(
            group, found[0][1], found[1][1], destination or self._contiguous(group.output, out), transposed=transposed
        )
        if destination is None:
            self.tensors.emit_contiguous(group, kernel, operands, macs)
        else:
            self.tensors.write(group.output, kernel, operands, group.name, group.kind, macs=macs)

    def _length_of(self, group: Group) -> list[relax.Expr]:
        """Returns the length of the input, if the kernel of a product of two computed matrices takes it."""
        return [] if group.length is None or group.matrices is None else [self.tensors.plain(group.length.var)]

    def _matrices(self, var: relax.Var, view: Strided) -> tuple[relax.Expr, Matrices]:
        """Returns the operand of a product and its matrices: the image `var` if there is one, else the plain tensor."""
        found = self.plan.matrices(var, view)
        if found is not None:
            return self.tensors.image(self.plan.root(var)[0], packed=False), found
        return self.tensors.flat(var), self._contiguous(var, view)

    def _contiguous(self, var: relax.Var, view: Strided) -> Matrices:
        return Matrices.contiguous(view, elements_of(var), str(var.ty.dtype), self.library.block)

    def _call_region(self, region: Region) -> None:
        sources, operands = [], []
        for var in region.inputs:
            root, padding, _ = self.plan.root(var)
            whole = (
                not padding and self.plan.is_whole(var) and image_shape(shape_of(var)) == image_shape(shape_of(root))
            )
            if whole and (self.tensors.has_image(root) or self.plan.moving.moves_image(root)):
                image = self.tensors.image(root, packed=False)
                sources.append(Access.of_image(self.plan.image(root, packed=False), shape_of(var)))
                operands.append(image)
            else:
                size = elements_of(var)
                sources.append(Access(str(var.ty.dtype), size, ()))
                operands.append(self.tensors.flat(var))
        outputs = [self._output(region, var) for var in region.outputs]
        bounded = leaves_out_columns(region, self.model.unread)
        made = self.library.rows(region, sources, outputs, has_length=bounded)
        if bounded and self.model.length is not None:
            operands.append(self.tensors.plain(self.model.length))
        seen = self.tensors.outputs
        described = [
            seen.places(v) if o.image is None else seen.image(v, o.image)
            for v, o in zip(region.outputs, outputs, strict=True)
        ]
        both = list(zip(region.outputs, outputs, strict=True))
        # A flat result would need a reshape, which would be copied if it is an output of the model.
        types = [
            relax.TensorType([output.access.size] if output.image else list(shape_of(var)), output.access.dtype)
            for var, output in both
        ]
        if made.memory:
            types.append(relax.TensorType([made.memory], "float32"))
            described.append(SCRATCH)
        alone = types[0] if len(types) == 1 else types
        written = self.tensors.emit(made.kernel, operands, region.name, region.operators, alone, outputs=described)
        for index, (var, output) in enumerate(both):
            result = written if len(types) == 1 else self.tensors.builder.emit(relax.TupleGetItem(written, index))
            if output.image is None:
                self.tensors.set_plain(var, self.tensors.reshaped(result, shape_of(var)))
            else:
                self.tensors.set_image(var, result)

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
        operands = [self.tensors.flat(var) for var in (sequence.seen, *first.before)]
        types = [relax.TensorType([size], dtype) for size, dtype in made.outputs]
        macs = sum(self.tensors.macs.get(step.sums, 0) for step in sequence.steps)
        written = self.tensors.emit(made.kernel, operands, sequence.name, "lstm", types, macs=macs)
        states, cell = (self.tensors.builder.emit(relax.TupleGetItem(written, index)) for index in range(2))
        self.tensors.set_plain(last.cell, self.tensors.reshaped(cell, shape_of(last.cell)))
        if sequence.joined is not None:
            self.tensors.set_plain(sequence.joined, self.tensors.reshaped(states, shape_of(sequence.joined)))
        self.tensors.set_rows(states, [step.hidden for step in sequence.steps])

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
            self.tensors.selection.concatenations.append(
                {"layer": group.name, "parts": len(group.inputs), "in_place": len(placed)}
            )
        return placed
