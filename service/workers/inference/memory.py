"""Tracks how much memory the loaded models take, and whether there is room for another model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from service.core.digest import Digest
from service.core.target import Device


@dataclass(frozen=True)
class Weight:
    """The memory that a model takes when it is loaded.

    Attributes:
        mapped: the files that the model maps, with their sizes. All models that map a file share its pages.
        private_bytes: the memory that the model's instances compute in, which no other model shares.
        device: the device whose memory this is.
    """

    mapped: Mapping[Digest, int]
    private_bytes: int
    device: Device = "cpu"

    @property
    def total_bytes(self) -> int:
        """The memory that the model takes if nothing else is loaded."""
        return self.private_bytes + sum(self.mapped.values())


def together(weights: Iterable[Weight]) -> Weight:
    """Returns the memory that several models of one device take together. A file that several of them map counts
    once.
    """
    mapped: dict[Digest, int] = {}
    private_bytes = 0
    device: Device = "cpu"
    for weight in weights:
        mapped |= weight.mapped
        private_bytes += weight.private_bytes
        device = weight.device
    return Weight(mapped, private_bytes, device)


class Memory:
    """Tracks the memory budget of each device, and the memory that is taken from it."""

    def __init__(self, limit_bytes: int, card_limit_bytes: int = 0) -> None:
        """
        Args:
            limit_bytes: the limit for all models on the CPU together; 0 means unlimited.
            card_limit_bytes: the limit for all models on GPUs together; 0 means unlimited.
        """
        self._limits: dict[Device, int] = {"cpu": limit_bytes, "cuda": card_limit_bytes}
        self._weights: dict[object, Weight] = {}

    def limit_bytes(self, device: Device) -> int:
        """Returns the limit of a device; 0 means unlimited."""
        return self._limits[device]

    @property
    def mapped(self) -> Collection[Digest]:
        """The files that the loaded models map."""
        return {digest for weight in list(self._weights.values()) for digest in weight.mapped}

    def used_bytes(self, device: Device) -> int:
        return together(self._weights_on(device)).total_bytes

    def has_room(self, weight: Weight) -> bool:
        limit_bytes = self._limits[weight.device]
        return not limit_bytes or together([*self._weights_on(weight.device), weight]).total_bytes <= limit_bytes

    def _weights_on(self, device: Device) -> list[Weight]:
        return [weight for weight in list(self._weights.values()) if weight.device == device]

    def take(self, weight: Weight) -> object:
        """Takes memory, even beyond the limit, and returns the receipt for `give_back`."""
        receipt = object()
        self._weights[receipt] = weight
        return receipt

    def weight(self, receipt: object) -> Weight:
        return self._weights[receipt]

    def device(self, receipt: object) -> Device:
        return self._weights[receipt].device

    def give_back(self, receipt: object) -> None:
        del self._weights[receipt]
