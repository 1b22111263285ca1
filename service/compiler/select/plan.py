"""The plan of a selection: the groups that have kernels, and the memory layouts of the tensors between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tvm import relax

from service.compiler.kernels.group import (
    REAL_PRODUCTS,
    Demand,
    Group,
    KernelLibrary,
    LstmKernel,
    PlainKernel,
    image_shape,
    shape_of,
    stored_zero_point,
)
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS, NO_HALO, Contiguous, Halo, Image
from service.compiler.kernels.matrices import Matrices, Strided
from service.compiler.kernels.rows import Fill, Region
from service.compiler.locating import declining, located
from service.compiler.qnn.operation import Operation
from service.compiler.select.groups import Model, View
from service.compiler.select.moving import Moving
from service.compiler.select.recurrent import Recurrent


@dataclass(frozen=True)
class Entry:
    """The plain tensor that is converted to an image, because no kernel writes that image directly.

    Attributes:
        source: the tensor, which is contiguous.
        quantize: the operator that quantizes the tensor, if it is float32.
        channels_first: true if the tensor is `[N, C, H, W]`.
    """

    source: relax.Var
    quantize: Operation | None = None
    channels_first: bool = False


class Plan:
    """The groups that have kernels, and the layouts of their outputs.

    Attributes:
        demands: maps the output of a group to the layouts that the group's kernel requires of its inputs.
        plain: maps the output of a group with contiguous inputs to the group's kernel.
        products: the outputs of products of two computed matrices.
        placements: maps an input of a concatenation to (the concatenation, the block of its memory at which the input
            begins).
        recurrent: maps the first variable of an LSTM to the LSTM and its kernel.
        quantized: maps the result of a `qnn.quantize` that is part of the conversion to an image to that
            `qnn.quantize`.
        declined: maps the name of each group that has no kernel to the reason, as in `Selection`.
        reasons: maps each variable of a declined group to the reason.
        regions: maps the variable of a region's last operator to the region.
        images: the tensors that regions write as images.
        moving: the moves that kernels compute.
    """

    def __init__(
        self,
        model: Model,
        library: KernelLibrary,
        regions: Sequence[Region] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """`refused` maps the name of a group's output to the reason why its kernel could not be created."""
        self.model, self.library, self._refused = model, library, refused or {}
        self._places = {var: index for index, (var, _) in enumerate(model.bindings)}
        self.demands: dict[relax.Var, list[Demand]] = {}
        self.products: set[relax.Var] = set()
        self.plain: dict[relax.Var, PlainKernel] = {}
        self.quantized: dict[relax.Var, Operation] = {}
        self.placements: dict[relax.Var, tuple[relax.Var, int]] = {}
        self.declined: dict[str, str] = {}
        self.reasons: dict[relax.Var, str] = {}
        self._fills: dict[tuple[relax.Var, bool], Fill] = {}
        self._halos: dict[tuple[relax.Var, bool], Halo] = {}
        self.recurrent: dict[relax.Var, tuple[Recurrent, LstmKernel]] = {}
        for sequence in model.recurrent:
            self._accept_recurrent(sequence)
        of_sequences = dict(self.reasons)
        self.images: set[relax.Var] = set()
        self.regions = {region.steps[-1].var: region for region in regions}
        for region in regions:
            self._pad_in_place(region)
        readers = [group for group in model.groups.values() if group.core.name not in ("qnn.matmul", *REAL_PRODUCTS)]
        read = {each for group in readers for var in group.inputs for each in (var, self.root(var)[0])}
        self.moving = Moving(model, library, self, self._taken(), read)
        every: list[Group | Region | relax.Var] = [*model.groups.values(), *regions, *self.moving.moves.joins]
        for group in sorted(every, key=self._order):
            if isinstance(group, relax.Var):
                self.moving.skips(group)
                continue
            if isinstance(group, Region):
                self._accept_region(group, read)
                continue
            join = group.core.name == "qnn.concatenate"
            if join and (self.moving.skips(group.output) or self.moving.prefers(group.output)):
                continue
            try:
                with located(group.core.name, group.name), declining():
                    self._accept(group)
                self.moving.write(group.output)
            except Declined as reason:
                if join and self.moving.movement(group.output) is not None:
                    continue
                self.declined.setdefault(group.name, f"{group.kind}: {reason}")
                self.reasons.update(dict.fromkeys((*model.parts(group), group.output), str(reason)))
                self._accept_part(group)
        self.reasons.update(of_sequences)
        self._read = {self.root(var)[0] for output in self.demands for var in model.groups[output].inputs}
        for output in self.demands:
            self._place_inputs(model.groups[output])

    def _taken(self) -> set[relax.Var]:
        """Returns the tensors that kernels other than move kernels compute, including those inside of groups."""
        taken = {step.var for region in self.regions.values() for step in region.steps}
        taken |= {var for sequence in self.model.recurrent for var in sequence.variables}
        for group in self.model.groups.values():
            own = set() if group.core.name == "qnn.concatenate" else {group.output}
            taken |= own | self.model.parts(group)
        return taken

    def _order(self, each: Group | Region | relax.Var) -> int:
        if isinstance(each, relax.Var):
            return self._places[each]
        return self._places[each.output if isinstance(each, Group) else each.steps[-1].var]

    def _accept_region(self, region: Region, read: set[relax.Var]) -> None:
        """Plans that a region's kernel writes those results as images that other kernels read as images (`read`)."""
        for var in region.outputs:
            stored = str(var.ty.dtype) in BIAS and image_shape(shape_of(var)) is not None
            if stored and var in read:
                self.images.add(var)
                last = next(step for step in region.steps if step.var.same_as(var))
                if last.name == "qnn.quantize" and last.operation is not None:
                    self._fills[var, False] = stored_zero_point(last.operation.per_tensor("out_type"))

    def _pad_in_place(self, region: Region) -> None:
        """Makes a region write the padding of its result, if the zero point is computed at run time
        (`qnn.dynamic_pad`).
        """
        own = {step.var for step in region.steps}
        for var, group in list(self.model.groups.items()):
            if group.core.name != "qnn.dynamic_pad":
                continue
            source, point = group.core.call.args
            if source in own and point in region.inputs:
                self.model.views[var] = View(source, Halo(*group.core.ints("padding", 4, 0)), point)
                del self.model.groups[var]

    def _accept_part(self, group: Group) -> None:
        """Accepts a declined layer without its residual addition, if a kernel computes the rest of the group."""
        layer = group.without_addition
        if layer is None:
            return
        with suppress(Declined):
            with located(layer.core.name, layer.name), declining():
                self._accept(layer)
            del self.model.groups[group.output]
            self.model.groups[layer.output] = layer

    def _accept_recurrent(self, sequence: Recurrent) -> None:
        """Accepts an LSTM if a kernel computes it, and removes its operators from the groups."""
        try:
            with located("lstm", sequence.name), declining():
                self._check_refused(sequence.steps[0].sums)
                kernel = self.library.lstm(sequence.steps[0].operators, len(sequence.steps))
        except Declined as reason:
            self.declined[sequence.name] = f"lstm: {reason}"
            self.reasons.update(dict.fromkeys(sequence.variables, str(reason)))
            return
        self.recurrent[sequence.steps[0].sums] = sequence, kernel
        for var in sequence.variables:
            self.model.groups.pop(var, None)

    def _check_refused(self, var: relax.Var) -> None:
        if str(var.name) in self._refused:
            raise Declined(self._refused[str(var.name)])

    def _accept(self, group: Group) -> None:
        self._check_refused(group.output)
        if group.core.name == "qnn.quantize":
            self.library.check_quantize(group.core)
            self.quantized[group.output] = group.core
            return
        if group.core.name in (*REAL_PRODUCTS, "qnn.softmax"):
            self.plain[group.output] = self.library.plain(group)
            return
        if group.core.name == "qnn.matmul":
            self.library.check_product(group)
            self.products.add(group.output)
            if not group.wide:
                self._fills[group.output, False] = stored_zero_point(group.out_type)
            return
        for var in (*group.inputs, group.output):
            if image_shape(shape_of(var)) is None:
                raise Declined(f"{var.name} is {var.ty.dtype} of rank {len(shape_of(var))}, not an image")
        if any(str(var.ty.dtype) not in BIAS for var in group.inputs):
            self.plain[group.output] = self.library.plain(group)
            return
        for var in group.inputs:
            self._drop_parts(var)
        roots = [self.root(var)[0] for var in group.inputs]
        # A kernel for a table lookup is faster than generated code even if layout changes are needed before and after
        # it.
        looks_up = group.core.name == "qnn.table"
        produced = [self._produced(root) or (looks_up and root in self.plain) for root in roots]
        demands = self.library.demands(group, produced)
        wanted = [self._rooted(var, demand) for var, demand in zip(group.inputs, demands, strict=True)]
        for key, halo, fill in wanted:
            if halo and self._fills.get(key, fill) != fill:
                raise Declined(f"{key[0].name} is padded with two different values")
        for key, halo, fill in wanted:
            self._halos[key] = self._halos.get(key, Halo()) | halo
            if halo:
                self._fills[key] = fill
        if not group.wide:
            self._fills[group.output, False] = stored_zero_point(group.out_type)
        self.demands[group.output] = demands

    def _produced(self, root: relax.Var) -> bool:
        """Returns true if a kernel writes `root` as an image."""
        product = root in self.products and image_shape(shape_of(root)) is not None
        return root in self.demands or root in self.images or product or self.moving.moves_image(root)

    def is_image(self, var: relax.Var) -> bool:
        root, padding, _ = self.root(var)
        return not padding and str(var.ty.dtype) in BIAS and self._produced(root)

    def view_of(self, var: relax.Var) -> Image:
        return self.part(self.image(self.root(var)[0], packed=False), var)

    def matrices(self, var: relax.Var, view: Strided, *, written: bool = False) -> Matrices | None:
        """Returns the matrices that a matrix product reads from the image `var`, or writes to it if `written`.

        Returns None if `var` is a plain tensor. The output of a product is an image if a kernel other than a product
        reads it as an image.
        """
        root, padding, _ = self.root(var)
        if padding or not (root in self.demands or root in self.quantized or root in self._read):
            return None
        image = self.image(root, packed=False)
        return None if written and image.halo else Matrices.within(image, view)

    def _place_inputs(self, group: Group) -> None:
        """Makes inputs of a concatenation parts of its output's memory, if possible, so that they need not be copied.

        The output then gets the largest halo that any reader of the inputs needs. A tensor can be part of only one
        other tensor's memory, and both must have the same halo value.
        """
        whole = group.output, False
        for var, block in zip(group.inputs, self.library.places(group), strict=True):
            root, padding, _ = self.root(var)
            own = root in self.model.constants or any(root in region.outputs for region in self.regions.values())
            free = root not in self.placements and not padding and not own and self.is_whole(var)
            if block is None or not free or self._fills.get((root, False), self._fills[whole]) != self._fills[whole]:
                continue
            self.placements[root] = group.output, block
            self._fills[root, False] = self._fills[whole]
            self._halos[whole] = self._halos.get(whole, NO_HALO) | self._halos.get((root, False), NO_HALO)

    def memory(self, root: relax.Var) -> relax.Var:
        """Returns the tensor whose memory contains `root`; `root` itself if it has its own memory."""
        while root in self.placements:
            root, _ = self.placements[root]
        return root

    def entry(self, root: relax.Var) -> Entry:
        """Returns the plain tensor that is converted to the image `root`.

        If `root` is the quantization or permutation of another tensor, returns that tensor, so that one pass suffices.
        """
        found = Entry(root)
        while True:
            if found.quantize is None and found.source in self.quantized:
                quantize = self.quantized[found.source]
                found = replace(found, source=quantize.call.args[0], quantize=quantize)
            elif not found.channels_first and found.source in self.model.channels_last:
                found = replace(found, source=self.model.channels_last[found.source], channels_first=True)
            else:
                return found

    def is_whole(self, var: relax.Var) -> bool:
        """Returns true if `var` includes all channels of the tensor that it is a view of."""
        while var in self.model.views:
            view = self.model.views[var]
            if view.part is not None:
                return False
            var = view.source
        return True

    def part(self, image: Image, var: relax.Var) -> Image:
        """Returns the part of `image` that `var` is a view of. `image` is the layout of the tensor returned by
        `root`.
        """
        parts = []
        while var in self.model.views:
            view = self.model.views[var]
            parts += [] if view.part is None else [view.part]
            var = view.source
        for first, channels in reversed(parts):
            image = image.part(first // self.library.block, channels)
        return image

    def _drop_parts(self, var: relax.Var) -> None:
        """Stops treating `var` as a view if it is a slice of a tensor that no kernel writes as an image.

        Otherwise an image of the whole tensor would be created only for its slices.
        """
        if not self.is_whole(var) and not self._produced(self.root(var)[0]):
            while var in self.model.views:
                view = self.model.views[var]
                if view.part is not None:
                    del self.model.views[var]
                var = view.source

    def _rooted(self, var: relax.Var, demand: Demand) -> tuple[tuple[relax.Var, bool], Halo, Fill]:
        root, padding, values = self.root(var)
        bias = BIAS[str(var.ty.dtype)]
        fills: set[Fill] = {value + bias if isinstance(value, int) else value for value in values}
        fills |= {demand.fill} if demand.halo else set()
        if len(fills) > 1:
            raise Declined(f"{var.name} is padded with several values")
        return (root, demand.packed), demand.halo + padding, next(iter(fills), 0)

    def root(self, var: relax.Var) -> tuple[relax.Var, Halo, list[Fill]]:
        """Follows the views from `var` to the tensor that has memory. Returns that tensor, and the total padding and
        the padding values of the views.
        """
        padding, fills = Halo(), list[Fill]()
        while var in self.model.views:
            view = self.model.views[var]
            padding = padding + view.padding
            if view.fill is not None:
                fills.append(view.fill)
            var = view.source
        return var, padding, fills

    def image(self, root: relax.Var, *, packed: bool) -> Image:
        """Returns the memory layout of `root`."""
        shape = image_shape(shape_of(root))
        assert shape is not None
        if not packed and root in self.placements:
            whole, block = self.placements[root]
            return self.image(whole, packed=False).part(block, shape[3])
        halo = self._halos.get((root, packed), Halo())
        return Image(*shape, 0 if packed else self.library.block, halo)

    def contiguous(self, var: relax.Var) -> Contiguous:
        """Returns the memory layout of the output of a group that is `wide`."""
        shape = image_shape(shape_of(var))
        assert shape is not None
        return Contiguous.of(shape, self.library.block)

    def fill(self, root: relax.Var, *, packed: bool) -> Fill:
        return self._fills.get((root, packed), 0)


def padded(image: Image, padding: Halo) -> Image:
    """Returns a view of `image` that is larger by `padding`: these rows and columns are taken from the halo."""
    if not padding:
        return image
    halo = Halo(*(have - shown for have, shown in zip(image.halo.sides, padding.sides, strict=True)))
    height = image.height + padding.top + padding.bottom
    width = image.width + padding.left + padding.right
    return Image(image.batch, height, width, image.channels, image.block, halo)
