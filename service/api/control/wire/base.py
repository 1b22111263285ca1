"""The base class of all schemas, and shared types."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from service.api.access.tenants import short_name

DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

Name = Annotated[str, AfterValidator(short_name)]
"""The name of a model, without the prefix of the request's tenant."""


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
