"""The parameters of NVIDIA GPUs for the cost model, by compute capability.

The parameters are from data sheets and from the CUDA C++ Programming Guide ("Arithmetic Instructions", "Technical
Specifications per Compute Capability"). If several GPUs have the same compute capability, the parameters are those of
the largest common GPU. The estimates only need to rank the candidate tiles correctly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Gpu:
    """The parameters of a compute capability, or of several, with limits that hold for all of them.

    Attributes:
        capability: for example `sm_80`, or `sm_80+sm_90` with the lowest first.
        multiprocessors: the number of multiprocessors.
        threads: the number of resident threads of a multiprocessor.
        shared_bytes: the shared memory of a multiprocessor.
        block_shared_bytes: the largest shared memory of one thread block.
        matrix_macs: the products of bytes per cycle that a multiprocessor's tensor cores compute with `mma`; 0 if they
            cannot multiply bytes.
        group_macs: the products per cycle with `wgmma`, an instruction of four warps; 0 if the GPU lacks it.
        dot_macs: the products per cycle with `dp4a`.
        near_bytes: the bytes per cycle that a multiprocessor reads from L2 cache while all of them read.
    """

    capability: str
    multiprocessors: int
    threads: int
    shared_bytes: int
    block_shared_bytes: int
    matrix_macs: int
    group_macs: int
    dot_macs: int
    near_bytes: int

    @property
    def copies_ahead(self) -> bool:
        """True if copies to shared memory can run asynchronously (`cp.async`)."""
        return int(self.capability.partition("+")[0].removeprefix("sm_")) >= 80


_KIB = 1 << 10

GPUS: Mapping[str, Gpu] = {
    card.capability: card
    for card in (
        Gpu("sm_61", 28, 2048, 96 * _KIB, 48 * _KIB, 0, 0, 512, 32),
        Gpu("sm_75", 40, 1024, 64 * _KIB, 64 * _KIB, 1024, 0, 256, 32),
        Gpu("sm_80", 108, 2048, 164 * _KIB, 163 * _KIB, 2048, 0, 256, 44),
        Gpu("sm_86", 82, 1536, 100 * _KIB, 99 * _KIB, 1024, 0, 256, 32),
        Gpu("sm_89", 128, 1536, 100 * _KIB, 99 * _KIB, 1024, 0, 256, 32),
        Gpu("sm_90", 132, 2048, 228 * _KIB, 227 * _KIB, 2560, 4096, 256, 30),
    )
}


def common(capabilities: Sequence[str]) -> Gpu:
    """Returns the smallest limits of all `capabilities`, so that a kernel that fits them runs on each GPU.

    Args:
        capabilities: at least one, in ascending order.
    """
    limits = zip(*(astuple(GPUS[each])[1:] for each in capabilities), strict=True)
    return Gpu("+".join(capabilities), *map(min, limits))
