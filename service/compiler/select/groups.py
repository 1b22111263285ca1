"""Divides the operators of a model into groups, one for each possible kernel call, and into views of other tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from service.compiler.kernels.group import REAL_PRODUCTS, Group, Length, image_shape, shape_of, uniform
from service.compiler.kernels.layout import BIAS, NO_HALO, Halo
from service.compiler.kernels.rows import Fill, Region
from service.compiler.qnn import graph
from service.compiler.qnn.lengths.axes import Axes
from service.compiler.qnn.lengths.unread import UnreadAxes
from service.compiler.qnn.numerics.scaling.by_channel import is_by_channel
from service.compiler.qnn.operation import Operation, value_of
from service.compiler.qnn.ops.defined import converts, is_real
from service.compiler.qnn.ops.products import length_of
from service.compiler.qnn.types import STORAGE_RANGES
from service.compiler.select.recurrent import sequences
from service.compiler.select.seen import Seen, channels_of, put_into, readers_of, seen_by
from service.core.models.arrays import Array

_ACCUMULATING = ("qnn.conv2d", "qnn.dense")
_TO_CHANNELS_LAST, _TO_CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_OF_REAL_VALUES = ("qnn.quantize", "qnn.dequantize", "qnn.dynamic_", "qnn.real_")
_REQUANTIZING = ("qnn.requantize", "qnn.requantize_add", "qnn.rescale", "qnn.dequantize")
_SCALING = ("qnn.dequantize", "qnn.dynamic_scale")


@dataclass(frozen=True)
class View:
    """A tensor that is a view of another tensor's memory.

    Attributes:
        source: the other tensor.
        padding: the numbers of rows and columns that the view adds around its source.
        fill: the value of the padding, as an element of the tensor, or a variable that contains it at run time; None
            without padding.
        part: (first channel, number of channels) if the view does not include all channels.
    """

    source: relax.Var
    padding: Halo = NO_HALO
    fill: Fill | None = None
    part: tuple[int, int] | None = None


class Model:
    """The function of a model, divided into groups and views.

    Attributes:
        bindings: (variable, value) pairs in order.
        groups: maps the output of each group to the group.
        views: maps each variable that is a view to the view.
        channels_last: maps the result of a permutation from `[N, C, H, W]` to `[N, H, W, C]` to its operand.
        channels_first: maps the result of a permutation from `[N, H, W, C]` to `[N, C, H, W]` to its operand.
        seen: maps each variable that is a permuted or sliced view of another tensor to the view.
        recurrent: the LSTMs. The operators of LSTMs are in `groups` too.
        unread: the axes of tensors along which nothing reads elements beyond the length of the input.
        length: the variable of this length; None if the inputs have one length.
        constants: maps a new variable to the constant operand that it represents. Constants whose elements are all
            equal are not included.
    """

    def __init__(self, function: relax.Function, block: int, varying: Sequence[Axes] = ()) -> None:
        """
        Args:
            block: the number of channels in a block. A slice of channels is a view only if it begins at a block.
            varying: for each input, the axes that have the length that the last parameter contains. Empty if the inputs
                have one length.
        """
        self.function = function
        self.unread = UnreadAxes(function, varying)
        self.length = function.params[-1] if varying else None
        found = list(graph.operations(function))
        self.bindings = [(var, value) for var, value, _ in found]
        self._operations = {var: operation for var, _, operation in found if operation is not None}
        self._uses = graph.uses_of(function)
        self.views = {var: view for var, value in self.bindings if (view := _view(value, block)) is not None}
        self.channels_last = self._permutations(_TO_CHANNELS_LAST)
        self.channels_first = self._permutations(_TO_CHANNELS_FIRST)
        self.seen = seen_by(self.bindings)
        # Maps the output of a matrix product's group to the group's inner variables: the product itself, and the
        # results of all but the last of the moves that follow it.
        self._inside: dict[relax.Var, list[relax.Var]] = {}
        self.constants: dict[relax.Var, Array] = {}
        self.groups = self._groups()
        self.recurrent = sequences(self.bindings, self._operations, self._uses)

    @property
    def taken(self) -> set[relax.Var]:
        """The variables of operators that kernels other than row kernels compute: the variables of LSTMs and of integer
        groups.
        """
        taken = {var for sequence in self.recurrent for var in sequence.variables}
        for group in self.groups.values():
            real = group.core.name.startswith(_OF_REAL_VALUES) or is_real(group.core)
            if group.requantize is not None or not real:
                taken |= {group.output, *self.parts(group)}
        return taken

    def leave(self, regions: Sequence[Region]) -> None:
        """Removes the groups that contain an operator of one of `regions`, because row kernels compute the regions."""
        inside = {step.var for region in regions for step in region.steps}
        for var, group in list(self.groups.items()):
            if not inside.isdisjoint({group.output, *self.parts(group)}):
                del self.groups[var]

    def _groups(self) -> dict[relax.Var, Group]:
        groups: dict[relax.Var, Group] = {}
        for var, operation in self._operations.items():
            if is_by_channel(operation):
                continue  # no kernel stores a per-axis type
            first = operation.call.args[0] if operation.call.args else None
            producer = self._operations.get(first) if isinstance(first, relax.Var) else None
            if producer is not None and producer.name in _ACCUMULATING:
                residual = operation.call.args[1:] if operation.name == "qnn.requantize_add" else ()
                inputs = (producer.call.args[0], *residual)
                computed = all(isinstance(operand, relax.Var) for operand in inputs) and _has_weights(producer)
                # Only LSTMs rescale accumulators and add another tensor to them. The kernel of an LSTM is found
                # separately.
                summed = operation.name == "qnn.rescale" and len(operation.call.args) > 1
                requantizes = operation.name in _REQUANTIZING or converts(operation)
                if requantizes and not summed and computed and self._uses[first] == 1:
                    length = self._length_of_rows(var)
                    groups[var] = Group(str(var.name), producer, operation, None, inputs, var, length=length)
            elif producer is not None and self._scales_product(operation, producer):
                groups.pop(first)
                group = self._product(var, producer, operation)
                groups[group.output] = group
            elif operation.name in REAL_PRODUCTS:
                factors = tuple(arg for arg in operation.call.args[:2] if isinstance(arg, relax.Var))
                if len(factors) == 2 and operation.name == "qnn.real_matmul":
                    group = self._product(var, operation, None)
                    groups[group.output] = group
                elif factors and factors[0].same_as(first):
                    groups[var] = Group(
                        str(var.name), operation, None, None, factors, var, length=self._length_of_rows(var)
                    )
            elif operation.name not in _ACCUMULATING and var not in self.views and (operands := self._data(operation)):
                length = self._length_of_rows(var)
                groups[var] = Group(str(var.name), operation, None, None, operands, var, length=length)
        groups.update(self._sums(groups))
        for group in list(groups.values()):
            if group.core.name == "qnn.add":
                self._fuse_addition(group, groups)
        for var, image in self.channels_first.items():
            if image in groups and groups[image].kind == "dequantize" and self._uses[image] == 1:
                groups[var] = replace(groups.pop(image), output=var, channels_first=True)
        return groups

    def _scales_product(self, operation: Operation, producer: Operation) -> bool:
        """Returns true if `operation` scales a product of two computed matrices, and nothing else reads the product."""
        names = producer.name == "qnn.matmul" and operation.name in ("qnn.requantize", "qnn.dequantize")
        computed = all(isinstance(operand, relax.Var) for operand in producer.call.args)
        return names and computed and self._uses[operation.call.args[0]] == 1

    def _product(self, var: relax.Var, core: Operation, requantize: Operation | None) -> Group:
        """Returns the group of a product of two computed matrices.

        The group includes reshapes, permutations and slices of the operands, and reshapes and permutations of the
        result.
        """
        lhs, rhs = (self.seen.get(operand, Seen.whole(operand)) for operand in core.call.args[:2])
        if not lhs.view.of_rows:
            lhs = Seen.whole(core.call.args[0])
        if not (rhs.view.of_rows or rhs.view.of_columns):
            rhs = Seen.whole(core.call.args[1])
        moves, out = put_into(var, readers_of(self.bindings), self._uses, self.views)
        output = moves[-1] if moves else var
        self._inside[output] = [var, *moves][:-1]
        batch = shape_of(var)[:-2]
        left, right = (each.view.broadcast((*batch, *each.view.shape[-2:])) for each in (lhs, rhs))
        inputs = lhs.source, rhs.source
        length = self._length_of(core, var, output)
        return Group(str(var.name), core, requantize, None, inputs, output, matrices=(left, right, out), length=length)

    def _length_of_rows(self, var: relax.Var) -> Length | None:
        """Returns the length of the input if nothing reads rows of `var` beyond it."""
        return Length(self.length, rows=True) if self.length is not None and self.unread.of(var) else None

    def _length_of(self, core: Operation, product: relax.Var, output: relax.Var) -> Length | None:
        """Returns what depends on the length of the input in a product, whose moved result is `output`."""
        unread, rank = self.unread.of(product), len(shape_of(product))
        if len(self.unread.of(output)) != len(unread):
            unread = ()
        depth = length_of(core)
        if depth is not None and not depth.same_as(self.length):
            return Length(depth, depth=True)
        if self.length is None or (depth is None and not unread):
            return None
        return Length(self.length, rows=rank - 2 in unread, columns=rank - 1 in unread, depth=depth is not None)

    def _permutations(self, axes: tuple[int, ...]) -> dict[relax.Var, relax.Var]:
        """Finds the permutations by `axes`, and maps the result of each to its operand."""
        return {
            var: value.args[0]
            for var, value in self.bindings
            if isinstance(value, relax.Call)
            and getattr(value.op, "name", "") == "relax.permute_dims"
            and isinstance(value.args[0], relax.Var)
            and tuple(int(axis) for axis in value.attrs.axes or ()) == axes
        }

    def _sums(self, groups: dict[relax.Var, Group]) -> dict[relax.Var, Group]:
        """Returns one group for each layer whose accumulators (int32 sums) are the group's output: no requantization
        that belongs to another group reads them.

        No group is returned if a QNN operator other than `_SCALING` reads the accumulators. The formula of such an
        operator depends on the layer that computes the accumulators, so the layer must remain in the graph.
        """
        taken = {group.requantize.call.args[0] for group in groups.values() if group.requantize is not None}
        for operation in self._operations.values():
            if operation.producer is not None and operation.name not in _SCALING:
                taken.add(operation.call.args[0])
        return {
            var: Group(
                str(var.name), operation, None, None, (operation.call.args[0],), var, length=self._length_of_rows(var)
            )
            for var, operation in self._operations.items()
            if operation.name in _ACCUMULATING
            and var not in taken
            and isinstance(operation.call.args[0], relax.Var)
            and _has_weights(operation)
        }

    def _fuse_addition(self, addition: Group, groups: dict[relax.Var, Group]) -> None:
        """Joins an addition to the convolution that computes one of its operands.

        If convolutions compute both operands, the addition is joined to the later convolution, so that the other
        operand exists when the kernel runs.
        """
        if len(addition.inputs) == 1 or not self.constants.keys().isdisjoint(addition.inputs):
            return
        lhs, rhs = addition.inputs
        if lhs.same_as(rhs) or shape_of(lhs) != shape_of(rhs):
            return
        order = {var: index for index, (var, _) in enumerate(self.bindings)}
        for operand, other in sorted(((lhs, rhs), (rhs, lhs)), key=lambda pair: -order.get(pair[0], -1)):
            producer = groups.get(operand)
            if producer is None or producer.kind != "conv2d+requantize" or self._uses[operand] != 1:
                continue
            if str(operand.ty.dtype) not in BIAS:
                continue  # only kernels with 8-bit outputs can add a second tensor (a residual) to their result
            inputs = (*producer.inputs, other)
            del groups[operand]
            groups[addition.output] = replace(
                producer, name=addition.name, addition=addition.core, inputs=inputs, output=addition.output
            )
            return

    def _data(self, operation: Operation) -> tuple[relax.Var, ...]:
        """Returns the data operands of an operator; () if no kernel can compute the operator, for example because all
        operands are constant.

        A constant whose elements are all equal is not a data operand: the operator is then a function of its other
        operands.
        """
        args = list(operation.call.args)
        joined = bool(args) and isinstance(args[0], relax.Tuple)
        fields = list(args[0].fields) if joined else args
        if not any(isinstance(field, relax.Var) for field in fields):
            return ()
        data = []
        for field in fields:
            value = value_of(field)
            if value is None:
                data.append(field)
            elif joined:
                data.append(self._constant(value))
            elif not uniform(value):
                if value.shape[-1] not in (1, shape_of(operation.call)[-1]):
                    return ()  # kernels cannot broadcast such a constant
                data.append(self._constant(_repeated(value, shape_of(operation.call))))
        return tuple(data)

    def _constant(self, value: Array) -> relax.Var:
        var = relax.Var(f"constant_{len(self.constants)}", relax.TensorType(list(value.shape), str(value.dtype)))
        self.constants[var] = value
        return var

    def parts(self, group: Group) -> set[relax.Var]:
        """Returns the variables inside `group`: the results of its operators except its output."""
        arguments = {arg for part in (group.requantize, group.addition) if part is not None for arg in part.call.args}
        moved = {self.channels_first[group.output]} if group.channels_first else set()
        moved |= set(self._inside.get(group.output, ()))
        return moved | {arg for arg in arguments if isinstance(arg, relax.Var)} - set(group.inputs)


def _has_weights(layer: Operation) -> bool:
    """Returns true if the weights of a layer are constant. Kernels pack them while they are compiled."""
    return value_of(layer.call.args[1]) is not None


def _repeated(value: Array, shape: Sequence[int]) -> Array:
    """Extends a constant to the rank of `shape`, and repeats a single channel for all channels of `shape`."""
    extents = (1,) * (len(shape) - value.ndim) + value.shape
    return np.broadcast_to(value.reshape(extents), (*extents[:-1], shape[-1]))


def _view(value: relax.Expr, block: int) -> View | None:
    """Describes the operator `value` as a view of its operand, or returns None if it is not a view.

    These operators are views: a padding of rows and columns, a reshape that does not change the channels of a pixel, a
    slice of whole blocks of channels, and a conversion between types that kernels store as the same bytes.
    """
    name = value.op.name if isinstance(value, relax.Call) and hasattr(value.op, "name") else ""
    if isinstance(value, relax.Var):
        return View(value)
    if name == "relax.reshape" and isinstance(value.args[0], relax.Var):
        before, after = image_shape(shape_of(value.args[0])), image_shape(shape_of(value))
        return View(value.args[0]) if before is not None and before == after else None
    if name == "relax.strided_slice" and isinstance(value.args[0], relax.Var):
        part = channels_of(value)
        return None if part is None or part[0] % block else View(value.args[0], part=part)
    if name == "relax.qnn.storage_cast" and isinstance(value.args[0], relax.Var):
        return View(value.args[0])
    if name == "relax.qnn.requantize" and isinstance(value.args[0], relax.Var):
        return View(value.args[0]) if _same_bytes(Operation(value)) else None
    if name == "relax.nn.pad" and isinstance(value.args[0], relax.Var):
        widths, fill = [int(width) for width in value.attrs.pad_width], float(value.attrs.pad_value)
        constant = (
            str(value.attrs.pad_mode) == "constant" and fill.is_integer()
        )  # float tensors may be padded with numbers that are not integers
        if constant and len(widths) == 8 and not any(widths[:2] + widths[6:]):
            return View(value.args[0], Halo(widths[2], widths[4], widths[3], widths[5]), int(fill))
    return None


def _same_bytes(operation: Operation) -> bool:
    """Returns true if a requantization only converts between int8 and uint8, which kernels store as the same bytes."""
    in_type, out_type = operation.quantized("in_type"), operation.quantized("out_type")
    if not {in_type.dtype, out_type.dtype} <= BIAS.keys() or not in_type.is_per_tensor:
        return False
    if is_by_channel(operation):
        return False
    low, high = STORAGE_RANGES[out_type.dtype]
    stored = [quantized.zero_point + BIAS[quantized.dtype] for quantized in (in_type, out_type)]
    return in_type.scale == out_type.scale and stored[0] == stored[1] and (out_type.min, out_type.max) == (low, high)
