"""Which elements of the tensors that kernels write are needed, if the length of the input is bound at a call."""

from __future__ import annotations

import math

from tvm import relax

from service.compiler.kernels.group import image_shape, shape_of
from service.compiler.kernels.layout import Image
from service.compiler.kernels.trimming.trim import Along, Written
from service.compiler.qnn.lengths.unread import UnreadAxes

SCRATCH = Written(is_scratch=True)


class Outputs:
    """Describes the outputs of kernels for `trimming`."""

    def __init__(self, axes: UnreadAxes) -> None:
        self._axes = axes

    def places(self, var: relax.Var) -> Written:
        """Returns the description of a plain tensor that may contain places of elements in another tensor. All of them
        are written, as nothing checks whether a place is inside that tensor.
        """
        return Written() if str(var.ty.dtype) in ("int32", "int64") else self.plain(var)

    def plain(self, var: relax.Var) -> Written:
        """Returns the description of a plain tensor."""
        shape = shape_of(var)
        return Written(tuple(Along(math.prod(shape[axis + 1 :]), shape[axis]) for axis in self._axes.of(var)))

    def image(self, root: relax.Var, image: Image) -> Written:
        """Returns the description of a tensor that is stored as `image`."""
        shape = image_shape(shape_of(root))
        if image.halo or shape is None:
            return Written()
        steps = image.image, image.row, image.pixel
        along: list[Along | None] = [
            Along(step, extent, image.origin) for step, extent in zip(steps, shape[:3], strict=True)
        ]
        along.append(None if image.shared_blocks else _channels(image))
        places = {2: (0, 3), 3: (0, 1, 3), 4: (0, 1, 2, 3)}[len(shape_of(root))]
        found = [along[places[axis]] for axis in self._axes.of(root)]
        return Written(tuple(each for each in found if each is not None))


def _channels(image: Image) -> Along:
    if image.packed:
        return Along(1, image.channels, image.origin)
    return Along(image.plane, image.blocks, image.origin, image.block)
