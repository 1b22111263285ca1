"""What the schemas have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from service.api.access.tenants import told

Name = Annotated[str, AfterValidator(told)]
"""The name of a model, as who asks calls it."""


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
