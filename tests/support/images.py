"""Runs single kernels: converts arrays to kernels' images and back, and builds and runs kernels on this machine."""

from __future__ import annotations

import ctypes
import mmap
import os
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from service.compiler.kernels.kernel import DeviceFunction, Kernel
from service.compiler.kernels.layout import BIAS, NO_HALO, Halo, Image
from service.compiler.kernels.libraries import ISAS
from service.compiler.kernels.rounding import round_all_products
from service.compiler.kernels.vector.isa import Isa
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.compiler.targets import codegen_target
from service.core.models.arrays import Array
from service.core.target import Target, detect_host, parse_target
from tests.support import emulated
from tests.support.qnn_models import float32
from tests.support.tile_data import permit_tiles
from tools.cuda_emulator.emulated_kernel import EmulatedKernel

import tvm  # isort: skip

Draw = Callable[[st.SearchStrategy[Any]], Any]

_EVEX_ENCODED = {"x86-64-v3+avxvnni": "x86-64-v4+vnni"}


def _built_for(isa: Isa) -> Target | None:
    """Returns the target for which kernels of `isa` are built to run here, or None if they cannot run.

    Architectures other than x86 are emulated. AVX512-VNNI with AVX512-VL has every instruction of AVX-VNNI, in another
    encoding. So the kernels for AVX-VNNI are also tested on CPUs with AVX512-VNNI.
    """
    if isa.name in emulated.CPUS:
        return parse_target(isa.name) if emulated.machine_of(isa.name).emulator else None
    names = [isa.name, *([_EVEX_ENCODED[isa.name]] if isa.name in _EVEX_ENCODED else [])]
    return next((target for target in map(parse_target, names) if target.runs_on(detect_host())), None)


# With `OCTET_TEST_ISAS=aarch64`, only instruction sets whose names begin with `aarch64` are tested. By default, the
# examples are divided among all instruction sets.
_CHOSEN = os.environ.get("OCTET_TEST_ISAS", "")
RUNNABLE = [isa for isa in ISAS.values() if isa.name.startswith(_CHOSEN) and _built_for(isa) is not None]

_UNWRITTEN = 5  # The value of bytes in a kernel's output before it runs.
_ACCIDENTAL = 77  # The value of padding and unused memory in an input, which must not affect the result.


def stored(values: Array) -> Array:
    """Returns 8-bit values as kernels store them: unsigned, with the bias of the type added."""
    return (values.astype(np.int16) + BIAS[str(values.dtype)]).astype(np.uint8)


def laid_out(image: Image, values: Array, fill: int = 0) -> Array:
    """Converts `[N, H, W, C] uint8` to the memory layout of kernels. The halo contains `fill`."""
    framed = with_halo(image, values, fill)
    buffer = np.full(image.size_bytes, _ACCIDENTAL, np.uint8)
    lanes = image.blocks * image.pixel
    blocked = np.full((*framed.shape[:3], lanes), _ACCIDENTAL, np.uint8)
    blocked[..., : image.channels] = framed
    blocked = blocked.reshape(*framed.shape[:3], image.blocks, image.pixel).transpose(0, 3, 1, 2, 4)
    _planes(image, buffer)[...] = blocked
    return buffer


def _planes(image: Image, buffer: Array) -> Array:
    """Returns a view of an image's blocks in its memory: `[N, blocks, H, W, block]`, including the halo."""
    top, left, bottom, right = image.halo.sides
    size = image.height + top + bottom, image.width + left + right
    whole = buffer[: image.batch * image.image].reshape(image.batch, -1, *size, image.pixel)
    return whole[:, image.first_block : image.first_block + image.blocks]


def with_halo(image: Image, values: Array, fill: int) -> Array:
    top, left, bottom, right = image.halo.sides
    return np.pad(values, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)


def read_back(image: Image, buffer: Array) -> Array:
    """Inverts `laid_out`. The result includes the halo and the padding of the last block: `[N, H, W, blocks *
    block]`.
    """
    blocked = _planes(image, buffer).transpose(0, 2, 3, 1, 4).copy()
    rest = buffer.copy()
    _planes(image, rest)[...] = _UNWRITTEN
    assert (rest == _UNWRITTEN).all(), "the kernel wrote outside of the image"
    return blocked.reshape(*blocked.shape[:3], -1)


def built(isa: Isa, kernel: Kernel) -> Any:
    """Builds the kernel, and returns it as a function of its inputs, constants and output."""
    if kernel.launch is not None:
        return partial(_on_gpu, isa.name, kernel)
    if isa.name in emulated.CPUS:
        return partial(_emulated, isa.name, kernel)
    module = tvm.IRModule({"kernel": kernel.tensor_program.with_attr("global_symbol", "kernel")})
    runs_as = _built_for(isa)
    assert runs_as is not None
    if isa.matrix is not None:
        permit_tiles()
    target = tvm.target.Target(dict(codegen_target(runs_as).llvm))
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_storage_rewrite": True}):
        return tvm.tirx.build(round_all_products(module), target=target)["kernel"]


def _emulated(target: str, kernel: Kernel, *tensors: Any) -> None:
    written = emulated.call(target, kernel, [tensor.numpy() for tensor in tensors])
    for tensor, values in zip(tensors, written, strict=True):
        tensor.copyfrom(values)


def _on_gpu(capability: str, kernel: Kernel, *operands: Any) -> None:
    assert isinstance(kernel.function, DeviceFunction)
    emulated_kernel = EmulatedKernel(kernel.function.source, "OCTET_KERNEL", architecture=capability)
    arrays = [operand.numpy() for operand in operands]
    launch = kernel.function.launch
    seed = zlib.crc32(kernel.function.source.encode())  # each kernel gets a different order of blocks and threads
    emulated_kernel.launch(launch.grid, launch.block, launch.shared_bytes, arrays, seed=seed)
    operands[-1].copyfrom(arrays[-1])


def run(isa: Isa, kernel: Kernel, *inputs: Array, dtype: str = "uint8") -> Array:
    """Runs the kernel, and returns the output that it wrote: `[output_bytes]` as `dtype`."""
    output = tvm.runtime.tensor(np.full(kernel.output_bytes // np.dtype(dtype).itemsize, _UNWRITTEN, dtype))
    built(isa, kernel)(*(tvm.runtime.tensor(array) for array in (*inputs, *kernel.constants)), output)
    return np.asarray(output.numpy())


def check_image(
    draw: Draw, isa: Isa, x: Array, expected: Array, zero_point: int, make: Callable[[Image, Image], Kernel]
) -> None:
    """Checks that a kernel computes `expected` from `x`, for images of any layout, and writes the zero point to the
    halo.

    Args:
        zero_point: the stored zero point.
        make: a function that takes the images of source and destination and creates the kernel.
    """
    source, destination = draw(blocked(isa, x.shape)), draw(blocked(isa, expected.shape))
    # The content of the source's halo must not affect the result.
    written = run(isa, make(source, destination), laid_out(source, stored(x), fill=draw(st.sampled_from([0, 255]))))
    image = read_back(destination, written)[..., : destination.channels]
    np.testing.assert_array_equal(image, with_halo(destination, stored(expected), zero_point))


def at_a_wall(size: int, dtype: str) -> Array:
    """Returns an array that ends at an unmapped page, so that any access beyond its end crashes the process.

    Args:
        size: a multiple of 64, because kernels need aligned buffers.
    """
    assert size % 64 == 0
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    region = mmap.mmap(-1, pages + mmap.PAGESIZE)
    wall = ctypes.addressof(ctypes.c_char.from_buffer(region)) + pages
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return np.frombuffer(region, dtype, size, pages - size)


# --- strategies for Hypothesis ---


def halos() -> st.SearchStrategy[Halo]:
    side = st.integers(0, 2)
    return st.just(Halo()) | st.builds(Halo, side, side, side, side)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Draws a shape. Widths may be odd, rows shorter than a vector, and channels may not fill a block."""
    return (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 9)),
        draw(st.sampled_from([3, 16, 24, 100])),
    )


@st.composite
def blocked(draw: st.DrawFn, isa: Isa, shape: tuple[int, ...], halo: Halo = NO_HALO) -> Image:
    """Draws an image in blocks, with any halo that includes `halo`. Some images are parts of a larger one."""
    batch, height, width, channels = shape
    image = Image(batch, height, width, channels, isa.lanes, halo | draw(halos()))
    before, behind = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2), (2, 1)]))
    if not before + behind:
        return image
    whole = Image(batch, height, width, (before + image.blocks + behind) * isa.lanes, isa.lanes, image.halo)
    return whole.part(before, channels)


@st.composite
def quantized_types(draw: st.DrawFn, storage: str, scale: float | None = None) -> QuantizedType:
    """Draws a per-tensor type. Some have a zero point at the end of the storage type's range, or bounds inside the
    range.
    """
    low, high = STORAGE_RANGES[storage]
    zero_point = draw(st.sampled_from([low, high]) | st.integers(low, high))
    own_scale = draw(st.floats(1e-3, 1.0).map(float32)) if scale is None else scale
    clamped = draw(st.booleans())
    bounds = (low + 20, high - 30) if clamped else (low, high)
    return QuantizedType(storage, (own_scale,), (zero_point,), None, *bounds)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], storage: str) -> Array:
    low, high = STORAGE_RANGES[storage]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.sampled_from(["random", "random", "extreme"])) == "extreme":
        return rng.choice([low, high], shape).astype(storage)
    return rng.integers(low, high, shape, endpoint=True).astype(storage)
