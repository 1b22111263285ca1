"""Schemas of aliases: names for versions of a model."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, FiniteFloat

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
    least: dict[Annotated[str, Field(max_length=132)], FiniteFloat] = Field(
        {},
        max_length=64,
        description="The scores that the version needs, by name, in addition to the setting `promote_least`; a name "
        "followed by `.low` is the lower end of the confidence interval.",
        examples=[{"top1": 0.7, "equal_outputs": 1.0}],
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
