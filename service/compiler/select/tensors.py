"""The tensors of the function that selection writes: as plain tensors, as images, or both.

A layout change is emitted just before the first use of its result. If several kernels write parts of one tensor, the
first one allocates the memory, and the others write into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from service.compiler.kernels.group import Group, KernelLibrary, shape_of
from service.compiler.kernels.kernel import Declined, Kernel
from service.compiler.kernels.layout import BIAS, laid_out
from service.compiler.kernels.moves import Memory, Move
from service.compiler.kernels.trimming.trim import Written, trimmed
from service.compiler.qnn import coverage, graph
from service.compiler.qnn.operation import value_of
from service.compiler.select.groups import Model
from service.compiler.select.moves import elements_of
from service.compiler.select.outputs import Outputs
from service.compiler.select.plan import Plan
from service.compiler.select.selection import Selection


class Tensors:
    """The tensors of the new function, by the variables of the old one.

    Attributes:
        builder: emits the new function.
        selection: records the calls of kernels and the operators that no kernel computes.
        macs: the number of multiplications of each operator.
    """

    def __init__(self, model: Model, library: KernelLibrary, plan: Plan) -> None:
        self.model, self.library, self.plan = model, library, plan
        self.builder = relax.BlockBuilder()
        self.selection = Selection(tvm.IRModule(), declined=plan.declined)
        self.macs = coverage.macs_by_operator(model.function)
        self.outputs = Outputs(model.unread)
        self._length: relax.Expr | None = None
        self._plain: dict[relax.Var, relax.Expr] = {}
        self._images: dict[tuple[relax.Var, bool], relax.Var] = {}
        # Maps a hidden state to (tensor of the hidden states of all steps, number of the step)
        self._rows: dict[relax.Var, tuple[relax.Var, int]] = {}
        # Maps a tensor that has other tensors in its memory to the variable of the memory after the last write
        self._shared: dict[relax.Var, relax.Var] = {}
        self._functions: dict[tuple[str, tuple[Written, ...]], tirx.PrimFunc | None] = {}  # kernels without the rest

    def set_params(self, old: Sequence[relax.Var], new: Sequence[relax.Var]) -> None:
        """Sets the parameters of the new function."""
        self._length = None if self.model.length is None else new[-1]
        self._plain.update(zip(old, new, strict=True))

    def set_plain(self, var: relax.Var, expr: relax.Expr) -> None:
        """Sets the plain tensor that a kernel wrote."""
        self._plain[var] = expr

    def set_image(self, var: relax.Var, written: relax.Var) -> None:
        """Sets the image that a kernel wrote."""
        self._images[var, False] = self._shared[var] = written

    def set_written_in_place(self, var: relax.Var) -> None:
        """Sets the image of a tensor whose parts have all been written to its memory."""
        self._images[var, False] = self._shared[self.plan.memory(var)]

    def set_rows(self, states: relax.Var, hidden: Iterable[relax.Var]) -> None:
        """Sets the hidden states of all steps, which are the rows of `states`."""
        self._rows.update({var: (states, index) for index, var in enumerate(hidden)})

    def has_image(self, root: relax.Var) -> bool:
        """Returns true if `root` was written as an image."""
        return (root, False) in self._images

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
                written = [self.outputs.places(var)]
                self._plain[var] = self.emit(kernel, operands, str(var.name), operators, out_type, outputs=written)
            else:  # the binding has not been emitted
                value = next(value for bound, value in self.model.bindings if bound.same_as(var))
                self.emit_plain(var, value)
        return self._plain[var]

    def with_plain(self, expr: relax.Expr) -> relax.Expr:
        """Returns `expr` with plain tensors as its operands."""
        if isinstance(expr, relax.Var):
            return self.plain(expr)
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([self.with_plain(part) for part in expr.fields])
        if isinstance(expr, relax.Call):
            return graph.with_args(expr, [self.with_plain(arg) for arg in expr.args])
        return expr

    def image(self, root: relax.Var, *, packed: bool) -> relax.Expr:
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
            flat = self.reshaped(self.plain(entry.source), [elements_of(root)])
            if packed:
                written = [self.outputs.image(root, image)]
                self._images[root, packed] = self.emit(kernel, [flat], f"{root.name}_image", kind, outputs=written)
            else:
                self.write(root, kernel, [flat], f"{root.name}_image", kind)
        return self._images[root, packed]

    def flat(self, var: relax.Var) -> relax.Expr:
        """Returns `var` as a plain tensor with one axis."""
        return self.reshaped(self.plain(var), [elements_of(var)])

    def reshaped(self, expr: relax.Expr, shape: Sequence[int]) -> relax.Expr:
        """Returns the plain tensor `expr` with another shape."""
        if shape_of(expr) == tuple(shape):
            return expr
        return self.builder.emit(relax.op.reshape(expr, list(shape)))

    def emit_plain(self, var: relax.Var, value: relax.Expr) -> None:
        """Emits the operator `value`, which no kernel computes, on plain tensors."""
        if self._unpacks(var):
            self._plain[var] = self._unpacked(self.model.channels_first[var], var, channels_first=True)
            return
        self._plain[var] = graph.emit(self.builder, self.with_plain(value), var.name)
        called = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
        if called in ("", "relax.reshape"):
            return  # the binding only gives an existing tensor another name
        reason = self.plan.reasons.get(var, "no kernel computes this operator")
        operators = called.removeprefix("relax.").removeprefix("qnn.")
        self.selection.leave(str(var.name), operators, reason, self.macs.get(var, 0))

    def emit_contiguous(self, group: Group, kernel: Kernel, operands: Sequence[relax.Expr], macs: int) -> None:
        """Emits a call of `kernel`, which writes the output of `group` as a plain tensor."""
        out_type, written = _shaped(group.output, str(group.output.ty.dtype)), [self.outputs.plain(group.output)]
        self._plain[group.output] = self.emit(
            kernel, operands, group.name, group.kind, out_type, macs=macs, outputs=written
        )

    def write(
        self, root: relax.Var, kernel: Kernel, operands: Sequence[relax.Expr], name: str, kind: str, macs: int = 0
    ) -> None:
        """Emits a kernel that writes `root` as an image, to its own memory or to the memory of a tensor that contains
        it.
        """
        memory, outputs = self.plan.memory(root), [self.outputs.image(root, self.plan.image(root, packed=False))]
        written = self.emit(kernel, operands, name, kind, macs=macs, into=self._shared.get(memory), outputs=outputs)
        self._images[root, False] = self._shared[memory] = written

    def emit(
        self,
        kernel: Kernel,
        operands: Sequence[relax.Expr],
        name: str,
        kind: str,
        out_type: Any = None,
        *,
        macs: int = 0,
        into: relax.Var | None = None,
        outputs: Sequence[Written] = (),
    ) -> relax.Var:
        """Emits a call of `kernel`. The kernel writes to new memory, or to a part of the memory `into`.

        Args:
            outputs: the outputs, if parts of them need not be written.
        """
        if self._length is not None and (function := self._trimmed(kernel, len(operands), outputs)) is not None:
            kernel, operands = replace(kernel, function=function), [*operands, self._length]
        self.selection.call(kernel, name, kind, macs)
        constants = [relax.const(array, str(array.dtype)) for array in kernel.constants]
        out_type = out_type or relax.TensorType([kernel.output_bytes], "uint8")
        arguments = [*operands, *constants]
        if into is None:
            return self.builder.emit(relax.call_dps_packed(kernel.symbol, relax.Tuple(arguments), out_type), name)
        position = len(arguments)
        call = relax.op.call_inplace_packed(kernel.symbol, *arguments, into, inplace_indices=position, ty_args=out_type)
        return self.builder.emit(call, name)

    def _trimmed(self, kernel: Kernel, sources: int, outputs: Sequence[Written]) -> tirx.PrimFunc | None:
        if not outputs or kernel.launch is not None:
            return None
        key = kernel.symbol, tuple(outputs)
        if key not in self._functions:
            self._functions[key] = trimmed(kernel.tensor_program, sources, kernel.constants, outputs)
        return self._functions[key]

    def _row(self, var: relax.Var) -> relax.Expr:
        states, position = self._rows[var]
        size = elements_of(var)
        row = self.builder.emit(
            relax.op.strided_slice(states, [0], [position * size], [(position + 1) * size]), str(var.name)
        )
        self.selection.leave(str(var.name), "strided_slice", "the kernel writes the states of all steps")
        return self.reshaped(row, shape_of(var))

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
            self.write(root, kernel, operands, str(root.name), operators)

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
            return self.image(self.plan.root(source)[0], packed=False)
        constant = value_of(source)
        if constant is not None:
            return relax.const(constant.reshape(-1), str(constant.dtype))
        return self.reshaped(self.plain(source), [memory.size])

    def _unpacked(self, image: relax.Var, var: relax.Var, *, channels_first: bool = False) -> relax.Expr:
        """Emits the conversion of `image`, which a kernel wrote, to the plain tensor `var`."""
        dtype = str(image.ty.dtype)
        shown = self.plan.part(self.plan.image(image, packed=False), var)
        kernel = self.library.unpack(shown, dtype, channels_first=channels_first)
        kind = "unpack+permute" if channels_first else "unpack"
        operands, written = [self._images[image, False]], [self.outputs.plain(var)]
        return self.emit(kernel, operands, f"{var.name}_plain", kind, _shaped(var, dtype), outputs=written)

    def _unpacks(self, var: relax.Var) -> bool:
        """Returns true if a kernel converts an image to the `[N, C, H, W]` tensor `var`."""
        image = self.model.channels_first.get(var)
        return image is not None and (image, False) in self._images and image not in self._plain


def _shaped(var: relax.Var, dtype: str) -> relax.TensorType:
    """Returns the type of a contiguous output that has the shape of `var`.

    A flat output would need a reshape, which would copy it.
    """
    return relax.TensorType(list(shape_of(var)), dtype)
