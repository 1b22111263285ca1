"""The quota of a tenant."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Quota(BaseModel):
    """The limits on what all keys of one tenant may use together."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_day: int | None = Field(
        None, gt=0, description="from midnight to midnight, UTC; by default any number"
    )
    builds_per_day: int | None = Field(
        None, gt=0, description="builds that are started, likewise; a quantization counts as two"
    )
    stored_bytes: int | None = Field(
        None, gt=0, description="total size of all model files and calibration sets; by default unlimited"
    )
