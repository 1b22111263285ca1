"""The ranges that live requests need are read from the server's counts."""

from __future__ import annotations

from typing import Any

import pytest

from service.cli.live import fetch_proposal
from service.core.builds.quantization import LiveRange
from service.core.errors import InvalidInput

NARROW = {"tensor": "a", "stored": {"low": -1, "high": 1}, "proposed": {"low": -3, "high": 2}}
WIDE = {"tensor": "b", "stored": {"low": -9, "high": 9}, "proposed": None}


class Counts:
    """Stands in for the client of a server that has counted `tensors`."""

    def __init__(self, *tensors: dict[str, Any]) -> None:
        self._tensors = tensors

    def saturation(self, model: str, version: int | None, days: int) -> dict[str, Any]:
        assert (model, version, days) == ("net", None, 7)
        return {"version": 4, "samples": 25, "tensors": list(self._tensors), "reason": "no request was sampled"}


def test_only_tensors_outside_their_range_are_proposed() -> None:
    proposal = fetch_proposal(Counts(NARROW, WIDE), "net")  # type: ignore[arg-type]
    assert (proposal.stored, proposal.proposed) == ({"a": (-1, 1)}, {"a": (-3, 2)})
    assert proposal.ranges == (LiveRange("a", -3, 2),)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (Counts(), "no live values of net version 4 were counted: no request was sampled"),
        (Counts(WIDE), "live data does not leave a range of net version 4, in 25 requests of 7 days"),
    ],
)
def test_there_is_nothing_to_propose(counts: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fetch_proposal(counts, "net")
