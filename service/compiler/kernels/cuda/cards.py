"""What the cost model knows of NVIDIA's cards, by compute capability: data.

Rates are those of the data sheets and of the CUDA C++ Programming Guide ("Arithmetic Instructions", "Technical
Specifications per Compute Capability"); of a capability that several cards share, its largest common one's. What counts
is that the order of tiles is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Card:
    """A compute capability; or several, with what all of them have.

    Attributes:
        capability: as `sm_80`, or `sm_80+sm_90`, the lowest first.
        multiprocessors: that share a kernel's blocks.
        threads: that a multiprocessor holds.
        shared_bytes: shared memory of a multiprocessor.
        block_shared_bytes: of one block, at most.
        matrix_macs: products of bytes that a multiprocessor's tensor cores add in a cycle; 0: it has none for bytes.
        group_macs: the same by instructions of four warps (`wgmma`), on one capability alone.
        dot_macs: the same by `dp4a`.
        near_bytes: that a multiprocessor gets from the second level of cache in a cycle, when all of them do.
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
        """Whether copies to shared memory run beside computing (`cp.async`)."""
        return int(self.capability.partition("+")[0].removeprefix("sm_")) >= 80


_KIB = 1 << 10

CARDS: Mapping[str, Card] = {
    card.capability: card
    for card in (
        Card("sm_61", 28, 2048, 96 * _KIB, 48 * _KIB, 0, 0, 512, 32),
        Card("sm_75", 40, 1024, 64 * _KIB, 64 * _KIB, 1024, 0, 256, 32),
        Card("sm_80", 108, 2048, 164 * _KIB, 163 * _KIB, 2048, 0, 256, 44),
        Card("sm_86", 82, 1536, 100 * _KIB, 99 * _KIB, 1024, 0, 256, 32),
        Card("sm_89", 128, 1536, 100 * _KIB, 99 * _KIB, 1024, 0, 256, 32),
        Card("sm_90", 132, 2048, 228 * _KIB, 227 * _KIB, 2560, 4096, 256, 30),
    )
}


def common(capabilities: Sequence[str]) -> Card:
    """The card whose limits are the smallest of these cards': one plan, with its tiles, runs on each of them.

    Args:
        capabilities: at least one, rising.
    """
    limits = zip(*(astuple(CARDS[each])[1:] for each in capabilities), strict=True)
    return Card("+".join(capabilities), *map(min, limits))
