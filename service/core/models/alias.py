"""Aliases: names for a version of a model. An alias can be promoted to another version, have a canary, and be rolled
back.

Aliases are immutable. A change computes a new value from the old one, so that the database, the store's index and the
tests share one implementation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from service.core.digest import canonical_json
from service.core.errors import Conflict, InvalidInput

LATEST = "latest"  # always the newest version that is ready; this alias cannot be set
STABLE = "stable"  # the alias for requests that name no version, once it is set
ALIAS_PATTERN = r"^[a-z][a-z0-9._-]{0,62}$"  # never a number, because numbers are versions
ALL_PERCENT = 100
_MOST_PREVIOUS = 16
_ANNOTATION = "dev.octet.alias."  # followed by MODEL:ALIAS; an annotation of the store's index itself


@dataclass(frozen=True)
class Alias:
    """An alias of a model, and the versions that answer for it.

    Attributes:
        version: the version that answers all requests except the canary's share.
        canary: another version on trial; None if there is none.
        canary_percent: the canary's percentage of the requests, 1 to 99; 0 without a canary.
        previous: earlier values of `version`, the latest first. A rollback returns to the first of them.
    """

    model: str
    name: str
    version: int
    changed_at: datetime
    canary: int | None = None
    canary_percent: int = 0
    previous: tuple[int, ...] = ()

    @property
    def versions(self) -> tuple[int, ...]:
        """All versions that answer for the alias now."""
        return (self.version,) if self.canary is None else (self.version, self.canary)

    def promoted(self, version: int, percent: int, at: datetime) -> Alias:
        """Returns the alias after `version` was promoted to answer `percent` percent of its requests.

        With 100 percent, `version` replaces the current version. With less, it becomes the canary.

        Raises:
            InvalidInput: `percent` is below 100 and `version` is the current version already.
        """
        if percent < ALL_PERCENT:
            if version == self.version:
                raise InvalidInput(f"alias {self.name!r} of model {self.model!r} already points at version {version}")
            return replace(self, canary=version, canary_percent=percent, changed_at=at)
        previous = self.previous if version == self.version else (self.version, *self.previous)[:_MOST_PREVIOUS]
        return replace(self, version=version, canary=None, canary_percent=0, previous=previous, changed_at=at)

    def rolled_back(self, away_from: int | None, at: datetime) -> Alias:
        """Returns the alias after a rollback: without its canary if it has one, otherwise with the previous version.

        Args:
            away_from: the version that should no longer answer. If this version does not answer now, the alias stays as
                it is, so that a rollback can be repeated safely. None for the version that was promoted last.

        Raises:
            Conflict: the alias has no previous version.
        """
        if away_from not in (None, *self.versions):
            return self
        if self.canary is not None and away_from in (None, self.canary):
            return replace(self, canary=None, canary_percent=0, changed_at=at)
        if not self.previous:
            raise Conflict(
                f"alias {self.name!r} of model {self.model!r} pointed at no version before {self.version}",
                hint=f"promote another: octet promote {self.model}:VERSION",
            )
        version, *rest = self.previous
        return replace(self, version=version, canary=None, canary_percent=0, previous=tuple(rest), changed_at=at)

    def without(self, versions: Collection[int], at: datetime) -> Alias | None:
        """Returns the alias after `versions` were deleted; None if its current version is one of them."""
        if self.version in versions:
            return None
        previous = tuple(version for version in self.previous if version not in versions)
        if self.canary in versions:
            return replace(self, canary=None, canary_percent=0, previous=previous, changed_at=at)
        return replace(self, previous=previous)


def first(model: str, name: str, version: int, percent: int, at: datetime) -> Alias:
    """Returns a new alias for `version`.

    Raises:
        InvalidInput: `percent` is below 100. A new alias needs a version that answers all requests.
    """
    if percent < ALL_PERCENT:
        raise InvalidInput(
            f"model {model!r} has no {name!r} that version {version} could share requests with",
            hint="promote a version for all requests first",
        )
    return Alias(model, name, version, at)


def check_alias(name: str) -> str:
    """Returns `name` if it is a valid name of an alias and can be set. Otherwise raises `InvalidInput`."""
    if name == LATEST:
        raise InvalidInput(
            "'latest' always means the newest version that is ready, and cannot be set", hint=f"set {STABLE!r}"
        )
    if not re.fullmatch(ALIAS_PATTERN, name):
        raise InvalidInput(f"{name!r} is not a valid alias name", hint="use lower case, not a number, such as stable")
    return name


def annotation_of(alias: Alias) -> tuple[str, str]:
    """Returns the name and value of the annotation that stores the alias in the store's index."""
    state = {
        "version": alias.version,
        "canary": alias.canary,
        "canary_percent": alias.canary_percent,
        "previous": list(alias.previous),
        "changed_at": alias.changed_at.astimezone(UTC).isoformat(),
    }
    return f"{_ANNOTATION}{alias.model}:{alias.name}", canonical_json(state).decode()


def is_annotation(name: str, model: str | None = None) -> bool:
    """Returns true if an annotation stores an alias, of `model` if that is given."""
    return name.startswith(_ANNOTATION if model is None else f"{_ANNOTATION}{model}:")


def aliases_in(annotations: Mapping[str, str]) -> list[Alias]:
    """Parses the aliases in annotations that `annotation_of` wrote; ignores all other annotations.

    Raises:
        ValueError: the annotation of an alias is malformed.
    """
    return [_parsed(name, value) for name, value in annotations.items() if is_annotation(name)]


def _parsed(annotation: str, value: str) -> Alias:
    model, _, name = annotation.removeprefix(_ANNOTATION).partition(":")
    try:
        state: dict[str, Any] = json.loads(value)
        return Alias(
            model,
            name,
            int(state["version"]),
            datetime.fromisoformat(state["changed_at"]),
            None if state["canary"] is None else int(state["canary"]),
            int(state["canary_percent"]),
            tuple(map(int, state["previous"])),
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"{annotation} is not an alias: {value!r}") from error
