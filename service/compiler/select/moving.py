"""Decides which moves (`moves`) kernels compute, and from which tensors, so that few intermediate tensors are
written.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Protocol

from tvm import relax

from service.compiler.kernels.group import KernelLibrary, image_shape, shape_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS, Image
from service.compiler.kernels.moves import Memory, patterns
from service.compiler.qnn import graph
from service.compiler.select.groups import Model
from service.compiler.select.moves import Movement, Moves, Part
from service.core.models.arrays import Array


class Layouts(Protocol):
    """The layouts of the tensors between kernels. `plan.Plan` implements this interface."""

    def is_image(self, var: relax.Var) -> bool:
        """Returns true if `var` is a view of an image that a kernel writes, or of some of its blocks."""

    def view_of(self, var: relax.Var) -> Image:
        """Returns the image that `var` is a view of, with the halo that is planned so far."""


class Moving:
    """Decides which moves of a model kernels compute."""

    def __init__(
        self,
        model: Model,
        library: KernelLibrary,
        layouts: Layouts,
        taken: Collection[relax.Var],
        read: Collection[relax.Var],
    ) -> None:
        """
        Args:
            taken: the tensors that other kernels compute, even if they are results of moves.
            read: the tensors that kernels read as images.
        """
        self._model, self._library, self._layouts = model, library, layouts
        results = {result for result in graph.results_of(model.function) if isinstance(result, relax.Var)}
        self.moves = Moves(model.bindings, results)
        self._written, self._read = set(taken), read
        self._found: dict[relax.Var, Movement | None] = {}
        self._images: dict[relax.Var, bool] = {}

    def skips(self, join: relax.Var) -> bool:
        """Returns true if a concatenation need not be written, because its readers can copy from its parts.

        Tensors that would be views of the concatenation are then copied from its parts too.
        """
        ends = self.moves.ends(join)
        if join not in self.moves.inner or any(self._is_taken(end, views=False) for end in ends):
            return False
        found = {end: self._movable(end, self._written) for end in ends}
        if any(movement is None for movement in found.values()):
            return False
        self._found.update(found)
        for end in ends:
            self._model.views.pop(end, None)
        return True

    def prefers(self, join: relax.Var) -> bool:
        """Returns true if some parts of a concatenation are results of moves, and one move kernel can compute the whole
        concatenation.
        """
        inner = self.moves.inner.difference(self._model.views)
        moved = join in self.moves and any(part in inner for part in self.moves.sources(join))
        return moved and self.movement(join) is not None

    def write(self, var: relax.Var) -> None:
        """Records that a kernel writes `var`, so that it is not treated as a move."""
        self._written.add(var)

    def movement(self, var: relax.Var) -> Movement | None:
        """Returns the movement by which a move kernel computes `var`, or None if no move kernel computes it."""
        if self._is_taken(var):
            return None
        if var not in self._found:
            found = self._movable(var, self._written)
            join = self.moves.movement(var, self._written).join
            if found is None and join is not None and not join.same_as(var):
                found = self._movable(var, {*self._written, join})
            self._found[var] = found
        return self._found[var]

    def moves_image(self, var: relax.Var) -> bool:
        """Returns true if a move kernel writes `var` as an image. If `var` is a permutation of an `[N, C, H, W]`
        tensor, a pack kernel converts that tensor instead.
        """
        return var not in self._model.channels_last and self.makes_image(var) and self.movement(var) is not None

    def makes_image(self, var: relax.Var) -> bool:
        """Returns true if a kernel reads `var`, or a tensor that moves compute from it, as an image."""
        if var not in self._images:
            ends = (
                end for reader in self.moves.readers[var] if reader in self.moves for end in self.moves.ends(reader)
            )
            possible = str(var.ty.dtype) in BIAS and image_shape(shape_of(var)) is not None
            self._images[var] = possible and (var in self._read or any(self.makes_image(end) for end in ends))
        return self._images[var]

    def _is_taken(self, var: relax.Var, *, views: bool = True) -> bool:
        return var not in self.moves or var in self._written or (views and var in self._model.views)

    def sources(self, movement: Movement, *, images: bool) -> tuple[Memory, ...]:
        """Returns the memory of the parts of a movement. If `images` is false, all parts are read as contiguous
        tensors.
        """
        return tuple(
            Memory.of_image(self._layouts.view_of(part.source), str(part.source.ty.dtype))
            if images and self.is_image(part)
            else Memory.contiguous(shape_of(part.source), str(part.source.ty.dtype))
            for part in movement.parts
        )

    def is_image(self, part: Part) -> bool:
        return isinstance(part.source, relax.Var) and self._layouts.is_image(part.source)

    def tables(self, movement: Movement) -> tuple[Array | None, ...]:
        """Returns the lookup tables of the parts (`kernels.moves.Move.tables`).

        Raises:
            Declined: the elements are not bytes.
        """
        return tuple(
            None if part.join is None else self._library.part_tables(part.join)[part.index] for part in movement.parts
        )

    def _movable(self, var: relax.Var, written: Collection[relax.Var]) -> Movement | None:
        movement = self.moves.movement(var, written)
        if movement.moves_nothing and not (self.makes_image(var) and self.is_image(movement.parts[0])):
            return None  # nothing has to be copied, or a pack or unpack kernel does all that is needed
        for images in (True, False):
            with suppress(Declined):
                self.tables(movement)
                sources = self.sources(movement, images=images)
                patterns(sources, self._destination(var), movement.elements, self._library.block)
                return movement
        return None

    def _destination(self, var: relax.Var) -> Memory:
        shape, dtype = shape_of(var), str(var.ty.dtype)
        extents = image_shape(shape)
        if self.makes_image(var) and extents is not None:
            return Memory.of_image(Image(*extents, self._library.block), dtype)
        return Memory.contiguous(shape, dtype)
