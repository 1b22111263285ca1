"""Counts of the values that requests caused, as a server stores them."""

from __future__ import annotations

from service.api.services import Services
from service.core.models.ranges import (
    ABOVE,
    BELOW,
    HEAD,
    INSIDE,
    LARGEST,
    LENGTH,
    SMALLEST,
    Counts,
    StoredRange,
)

CONV = StoredRange("conv", 0.5, 0, -128, 127)  # -64 to 63.5
RELU = StoredRange("relu", 0.1, -128, -128, 127)  # 0 to 25.5


def counts_of(
    below: int = 0, above: int = 0, inside: int = 100, smallest: int | None = None, largest: int | None = None
) -> Counts:
    """Returns counts of values in the first, the first inner and the last bin of the histogram."""
    found = [0] * LENGTH
    found[BELOW], found[ABOVE] = below, above
    found[SMALLEST] = (-200 if below else -100) if smallest is None else smallest
    found[LARGEST] = (200 if above else 100) if largest is None else largest
    found[HEAD], found[HEAD + INSIDE], found[-1] = below, inside, above
    return tuple(found)


def add_counts(services: Services, model: str, *counts: Counts, version: int = 1, dropped: int = 0) -> None:
    """Stores the counts of 10 requests of the tensors CONV and RELU."""
    services.live.add(model, version, "sha256:counting", (CONV, RELU), counts, 10, dropped)
