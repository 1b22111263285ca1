"""Schemas of aliases: names for versions of a model."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from service.api.control.wire.base import Wire
from service.api.control.wire.parameters import DEFAULT_ALIAS
from service.core.models.alias import ALL_PERCENT


class Canary(Wire):
    """A version on trial."""

    version: int
    percent: int = Field(ge=1, lt=ALL_PERCENT, description="The percentage of requests that it serves.")


class Alias(Wire):
    """A name for a version, used in `/v2/models/NAME/versions/ALIAS`, or as `NAME@ALIAS`."""

    name: str = Field(examples=["stable"], description="The alias. Requests that name no version go to `stable`.")
    version: int
    canary: Canary | None = Field(description="Another version that serves some of the requests.")
    previous: list[int] = Field(description="The versions that rollbacks return to, most recent first.")
    changed_at: datetime


class Aliases(Wire):
    aliases: list[Alias] = Field(
        description="The aliases by name, without `latest`, which is the newest version that is ready."
    )


class Promotion(Wire):
    version: int = Field(ge=1, le=10**9)
    alias: str = Field(
        DEFAULT_ALIAS, max_length=63, description="The alias: lower case, not a number, and not `latest`."
    )
    percent: int = Field(
        ALL_PERCENT,
        ge=1,
        le=ALL_PERCENT,
        description="The percentage of requests that the version serves; less than 100 makes it a canary.",
    )


class Rollback(Wire):
    alias: str = Field(DEFAULT_ALIAS, max_length=63)
    away_from: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="The version to roll back from. If it is not the current one, nothing changes, so the request "
        "can be repeated safely.",
    )
