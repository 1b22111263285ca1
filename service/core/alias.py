"""Names that stand for a version of a model: promoted to another, shared with a canary, rolled back.

Every change is a value made of the one before, so that tables, index and tests have one idea of it.
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

LATEST = "latest"  # the newest version that is ready; it cannot be set
STABLE = "stable"  # once set, it answers requests that name no version
ALIAS_PATTERN = r"^[a-z][a-z0-9._-]{0,62}$"  # never a number: those are versions
ALL_PERCENT = 100
_MOST_PREVIOUS = 16
_ANNOTATION = "dev.octet.alias."  # + model:alias, on the store's index itself


@dataclass(frozen=True)
class Alias:
    """The versions that a name stands for.

    Attributes:
        version: answers, but for the canary's share.
        canary: another version on trial; None for none.
        canary_percent: its share of the requests, 1 to 99; 0 where there is none.
        previous: what `version` was before, the last first: where a rollback leads.
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
        """All versions that it stands for now."""
        return (self.version,) if self.canary is None else (self.version, self.canary)

    def promoted(self, version: int, percent: int, at: datetime) -> Alias:
        """Stands for `version` in `percent` of the requests: in all of them, or beside what it stood for.

        Raises:
            InvalidInput: a share is given for the version that answers already.
        """
        if percent < ALL_PERCENT:
            if version == self.version:
                raise InvalidInput(f"{self.name!r} of model {self.model!r} stands for version {version} already")
            return replace(self, canary=version, canary_percent=percent, changed_at=at)
        previous = self.previous if version == self.version else (self.version, *self.previous)[:_MOST_PREVIOUS]
        return replace(self, version=version, canary=None, canary_percent=0, previous=previous, changed_at=at)

    def rolled_back(self, away_from: int | None, at: datetime) -> Alias:
        """Stands for what it did before: without its canary if it has one, or else for the version before.

        Args:
            away_from: the version that shall not answer any more; where it does not, nothing changes, so that a
                rollback can be repeated. None for whichever was promoted last.

        Raises:
            Conflict: there is no version before.
        """
        if away_from not in (None, *self.versions):
            return self
        if self.canary is not None and away_from in (None, self.canary):
            return replace(self, canary=None, canary_percent=0, changed_at=at)
        if not self.previous:
            raise Conflict(
                f"{self.name!r} of model {self.model!r} stood for no version before {self.version}",
                hint=f"promote another: octet promote {self.model} VERSION",
            )
        version, *rest = self.previous
        return replace(self, version=version, canary=None, canary_percent=0, previous=tuple(rest), changed_at=at)

    def without(self, versions: Collection[int], at: datetime) -> Alias | None:
        """The alias after `versions` are deleted; None if no version is left to answer for it."""
        if self.version in versions:
            return None
        previous = tuple(version for version in self.previous if version not in versions)
        if self.canary in versions:
            return replace(self, canary=None, canary_percent=0, previous=previous, changed_at=at)
        return replace(self, previous=previous)


def first(model: str, name: str, version: int, percent: int, at: datetime) -> Alias:
    """A new alias. Raises `InvalidInput` for a share: there is nothing to share with."""
    if percent < ALL_PERCENT:
        raise InvalidInput(
            f"model {model!r} has no {name!r} that version {version} could share requests with",
            hint="promote a version for all requests first",
        )
    return Alias(model, name, version, at)


def check_alias(name: str) -> str:
    """`name`, if it can be set. Raises `InvalidInput`."""
    if name == LATEST:
        raise InvalidInput(
            "'latest' always means the newest version that is ready, and cannot be set", hint=f"set {STABLE!r}"
        )
    if not re.fullmatch(ALIAS_PATTERN, name):
        raise InvalidInput(f"{name!r} is not a valid alias name", hint="use lower case, not a number, such as stable")
    return name


def annotation_of(alias: Alias) -> tuple[str, str]:
    """Name and value of the annotation by which the store's index knows the alias."""
    state = {
        "version": alias.version,
        "canary": alias.canary,
        "canary_percent": alias.canary_percent,
        "previous": list(alias.previous),
        "changed_at": alias.changed_at.astimezone(UTC).isoformat(),
    }
    return f"{_ANNOTATION}{alias.model}:{alias.name}", canonical_json(state).decode()


def is_annotation(name: str, model: str | None = None) -> bool:
    """Whether an annotation is of an alias (of this model)."""
    return name.startswith(_ANNOTATION if model is None else f"{_ANNOTATION}{model}:")


def aliases_in(annotations: Mapping[str, str]) -> list[Alias]:
    """Parses the result of `annotation_of`.

    Raises:
        ValueError: an annotation of that name holds something else.
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
