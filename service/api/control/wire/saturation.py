"""Schemas of the counts of the values that requests cause."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from service.api.control.wire.base import Name, Wire


class SaturationState(StrEnum):
    OFF = "off"
    WAITING = "waiting"
    WITHIN = "within"
    OUTSIDE = "outside"


class Range(Wire):
    """A range of real values."""

    low: float
    high: float


class TensorCounts(Wire):
    """The values that requests caused in one tensor, before they were clamped to the range that the tensor stores."""

    tensor: str = Field(description="The name of the operator's result in the imported model.")
    stored: Range = Field(description="The range that calibration chose. Values outside it are clipped.")
    live: Range = Field(description="The smallest and the largest value.")
    values: int = Field(description="The number of values.")
    below: int = Field(description="How many were below the stored range.")
    above: int = Field(description="How many were above it.")
    activation: list[str] = Field(
        description="The ends of the stored range, `low` or `high`, that are the bounds of an activation (a ReLU, or "
        "the 6 of a ReLU6). Values beyond such an end are not counted as clipped."
    )
    clipped: float = Field(description="The fraction of values that were clipped, 0 to 1.")
    state: SaturationState = Field(description="`outside` if more values were clipped than `limit`, else `within`.")
    proposed: Range | None = Field(
        None,
        description="If the tensor is outside: the stored range, widened so that at most one in 10,000 of these values "
        "is clipped at each end. `octet quantize --from-live` uses it.",
    )
    bin_width: float = Field(description="The width of a bin of the histogram.")
    first_edge: float = Field(description="The lower edge of the histogram's first bin.")
    histogram: list[int] = Field(
        description="The number of values in each of 192 bins. The middle third covers the stored range; the first and "
        "the last bin also contain all values beyond the histogram."
    )


class Saturation(Wire):
    """The values that a share of the answered requests caused in a version of a model."""

    name: Name
    version: int
    share: float = Field(description="The fraction of requests that are counted (`OCTET_SATURATION_SHARE`).")
    state: SaturationState = Field(
        description="`off`: no request is counted, and none was in these days; `waiting`: no request was counted yet; "
        "`within`: no tensor is outside; `outside`: live data leaves the calibrated range of at least one tensor."
    )
    reason: str | None = Field(None, description="Why no request was counted.")
    limit: float = Field(description="The fraction of clipped values of a tensor from which its state is `outside`.")
    days: int = Field(description="The counts are those of this many days, including today (UTC).")
    samples: int = Field(description="The number of requests that were counted.")
    dropped: int = Field(description="The number of requests that were chosen but not counted, because of the load.")
    tensors: list[TensorCounts] = Field(description="The tensors in the order of the model.")
