"""A halo is filled completely, and no other byte is written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx

from service.compiler.kernels.halo import fill_halo
from service.compiler.kernels.kernel import Kernel
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.program import Program, load
from service.compiler.kernels.vector.isa import Isa
from service.core.models.arrays import Array
from tests.support.examples import examples
from tests.support.images import RUNNABLE, halos, run, shapes

pytestmark = pytest.mark.skipif(not RUNNABLE, reason="no x86-64 target runs here")
UNWRITTEN, FILL = 5, 200  # `run` initializes outputs with the first value


def filling(isa: Isa, image: Image, planes: int, last: int) -> Kernel:
    """Returns a kernel that fills the halos of the planes before plane number `last`. Each iteration of its loop fills
    `planes` planes."""
    program = Program()
    value = program.parameter("value", "int32", 1)
    destination = program.parameter("destination", "uint8", image.size_bytes)
    fill = tirx.Cast("uint8", load(value, 0, 1))
    with program.loop(image.batch * image.blocks // planes, "item", parallel=True) as item:
        plane = item * planes
        fill_halo(program, isa.bytes, destination, image, fill, plane=plane, planes=planes, when=plane < last)
        program.store(destination, plane * image.plane + image.origin, tirx.const(UNWRITTEN, "uint8"), 1)
    return Kernel("halo", program.function(), (np.array([FILL], np.int32),), image.size_bytes)


def bordered(image: Image, planes: int) -> Array:
    """Returns the memory of an image in which only the halos of the first `planes` planes are written."""
    buffer = np.full(image.size_bytes, UNWRITTEN, np.uint8)
    top, left, bottom, right = image.halo.sides
    shape = (image.batch * image.blocks, image.height + top + bottom, image.width + left + right, image.pixel)
    rows = buffer[: image.batch * image.image].reshape(shape)[:planes]
    rows[:, :top], rows[:, :, :left] = FILL, FILL
    rows[:, top + image.height :], rows[:, :, left + image.width :] = FILL, FILL
    return buffer


@settings(max_examples=examples(30), deadline=None)
@given(st.data(), st.sampled_from(RUNNABLE or list(ISAS.values())), shapes(), halos(), st.booleans())
def test_only_the_halo_is_written(
    data: st.DataObject, isa: Isa, shape: tuple[int, int, int, int], halo: Halo, packed: bool
) -> None:
    image = Image(*shape, 0 if packed else isa.lanes, halo)
    count = image.batch * image.blocks
    planes = data.draw(st.sampled_from([planes for planes in range(1, count + 1) if count % planes == 0]))
    last = planes * data.draw(st.integers(0, count // planes))
    np.testing.assert_array_equal(run(isa, filling(isa, image, planes, last)), bordered(image, last))
