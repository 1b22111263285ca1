"""What the schemas have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
