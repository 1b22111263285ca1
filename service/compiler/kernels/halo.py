"""Fills the border of an image. Every kernel that writes an image with a halo also writes the halo."""

from __future__ import annotations

from service.compiler.kernels.layout import Image
from service.compiler.kernels.program import Buffer, Expr, Program, at_most, splat


def fill_halo(
    program: Program,
    vector_bytes: int,
    destination: Buffer,
    tensor: Image,
    value: Expr,
    *,
    plane: Expr,
    planes: int = 1,
    when: Expr,
) -> None:
    """Writes `value` to the halo of some planes of a tensor. Does nothing if the tensor has no halo.

    In a parallel loop, the iteration that writes the first pixel of a plane also fills the plane's halo. So no second
    parallel loop is needed, and no two iterations write the same bytes. The right halo of a row and the left halo of
    the next row are contiguous, and are filled together.

    Args:
        vector_bytes: the width of a store.
        value: the tensor's zero point as stored, uint8.
        plane: the number of the first plane. Planes are numbered `image * tensor.blocks + block`.
        planes: the number of consecutive planes.
        when: the halo is filled only if this condition is true.
    """
    if not tensor.halo:
        return
    after_row = tensor.margin + tensor.width * tensor.pixel
    between_rows = tensor.row - tensor.width * tensor.pixel
    with program.when(when), program.loop(planes, "plane") as position:
        start = program.bind(tensor.plane_start(plane + position))
        _fill(program, vector_bytes, destination, start, tensor.margin, value)
        if between_rows and tensor.height > 1:
            with program.loop(tensor.height - 1, "row") as row:
                _fill(program, vector_bytes, destination, start + after_row + row * tensor.row, between_rows, value)
        last = after_row + (tensor.height - 1) * tensor.row
        _fill(program, vector_bytes, destination, start + last, tensor.plane - last, value)


def _fill(program: Program, vector_bytes: int, destination: Buffer, start: Expr, size: int, value: Expr) -> None:
    """Fills exactly `size` bytes from `start`. Stores overlap if the size is not a multiple of their width."""
    if size == 0:
        return
    width = vector_bytes
    while width > size:
        width //= 2
    stored = splat(value, width) if width > 1 else value
    with program.loop(-(-size // width), "run") as step:
        program.store(destination, start + at_most(step * width, size - width), stored, width)
