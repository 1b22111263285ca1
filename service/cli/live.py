"""Fetches the ranges that live requests of a served model need, for `octet quantize --from-live`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.cli.versions import resolve_model
from service.core.builds.quantization import LiveRange
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    from service.cli.client import Client

DAYS = 7  # the counts of so many days determine the ranges

Range = tuple[float, float]


@dataclass(frozen=True)
class Proposal:
    """The ranges that live requests of a version need.

    Attributes:
        stored: name of a tensor -> the lowest and highest value that the version can store.
        proposed: name of a tensor -> the lowest and highest value that live data needs, for the same tensors.
    """

    stored: Mapping[str, Range]
    proposed: Mapping[str, Range]

    @property
    def ranges(self) -> tuple[LiveRange, ...]:
        return live_ranges(self.proposed)


def live_ranges(proposed: Mapping[str, Range]) -> tuple[LiveRange, ...]:
    """Returns ranges in the form of the options of a quantization."""
    return tuple(LiveRange(tensor, low, high) for tensor, (low, high) in proposed.items())


def fetch_proposal(client: Client, model: str) -> Proposal:
    """Returns the ranges that live requests of a version need, by default those of the newest version.

    Args:
        model: `NAME`, `NAME:VERSION` or `NAME@ALIAS`.

    Raises:
        NotFound: the model or the alias does not exist.
        InvalidInput: nothing was counted, or live data does not leave a range.
    """
    name, version = resolve_model(client, model)
    found = client.saturation(name, version, DAYS)
    what = f"{name} version {found['version']}"
    if not found["tensors"]:
        raise InvalidInput(f"no live values of {what} were counted: {found['reason']}")
    outside = [each for each in found["tensors"] if each["proposed"] is not None]
    if not outside:
        raise InvalidInput(
            f"live data does not leave a range of {what}, in {found['samples']} requests of {DAYS} days",
            hint=f"octet saturation {model} shows the ranges",
        )
    stored, proposed = (
        {each["tensor"]: (float(each[which]["low"]), float(each[which]["high"])) for each in outside}
        for which in ("stored", "proposed")
    )
    return Proposal(stored, proposed)
