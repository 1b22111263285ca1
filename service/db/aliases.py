"""The table of aliases."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.errors import Conflict, NotFound
from service.core.models.alias import Alias, check_alias, first
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.rows import Row
from service.db.tables import model_aliases, model_versions

Aliases = list[Alias]  # `list` is a method below


class AliasStore:
    """The aliases of all models. Each change is one transaction, so a reader never sees a part of it."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    @repeated
    def find(self, model: str, name: str) -> Alias | None:
        """Returns the alias; None if it is not set."""
        with self._database.read() as connection:
            return _find(connection, model, name)

    @repeated
    def list(self, model: str | None = None) -> Aliases:
        """Returns the aliases of a model, or of all models, sorted by model and name."""
        query = sa.select(model_aliases).order_by(model_aliases.c.model, model_aliases.c.name)
        if model is not None:
            query = query.where(model_aliases.c.model == model)
        with self._database.read() as connection:
            return [_alias_from(row) for row in connection.execute(query)]

    def promote(self, model: str, name: str, version: int, percent: int) -> Alias:
        """Lets a version answer `percent` of the alias's requests (`Alias.promoted`).

        Raises:
            NotFound: the model has no such version.
            InvalidInput: `name` cannot be set, or `percent` is below 100 and the alias is new or points at `version`
                already.
        """
        check_alias(name)

        def change(known: Alias | None, at: datetime) -> Alias:
            return known.promoted(version, percent, at) if known else first(model, name, version, percent, at)

        return self._change(model, name, change, version)

    def rollback(self, model: str, name: str, away_from: int | None = None) -> Alias:
        """Removes the alias's canary, or returns to its previous version (`Alias.rolled_back`).

        Raises:
            NotFound: the model has no such alias.
            Conflict: the alias has no previous version.
        """
        return self._change(model, name, lambda known, at: _set(known, model, name).rolled_back(away_from, at))

    @repeated_if_undone
    def remove(self, model: str, name: str) -> None:
        """Deletes the alias. Raises `NotFound` if the model has no such alias."""
        with self._database.write() as connection:
            _set(_find(connection, model, name, lock=True), model, name)
            connection.execute(sa.delete(model_aliases).where(*_is(model, name)))

    @repeated_if_undone
    def restore(self, alias: Alias) -> bool:
        """Restores an alias after a database was lost. Returns false if the model has an alias of that name already."""
        with self._database.write() as connection:
            return _insert(connection, alias)

    @repeated_if_undone
    def _change(
        self, model: str, name: str, change: Callable[[Alias | None, datetime], Alias], version: int | None = None
    ) -> Alias:
        while True:
            with self._database.write() as connection:
                if version is not None:
                    _check_version(connection, model, version)
                known = _find(connection, model, name, lock=True)
                alias = change(known, self._database.now(connection, self._clock))
                if known is not None:
                    connection.execute(sa.update(model_aliases).where(*_is(model, name)).values(**_values(alias)))
                elif not _insert(connection, alias):
                    continue  # another process has inserted the row: PostgreSQL locks rows, not the table
                return alias


def _is(model: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return model_aliases.c.model == model, model_aliases.c.name == name


def _find(connection: sa.Connection, model: str, name: str, lock: bool = False) -> Alias | None:
    query = sa.select(model_aliases).where(*_is(model, name))
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _alias_from(row)


def _set(alias: Alias | None, model: str, name: str) -> Alias:
    if alias is None:
        raise NotFound(f"model {model!r} has no alias {name!r}", hint=f"octet promote {model}:VERSION --alias {name}")
    return alias


def _check_version(connection: sa.Connection, model: str, version: int) -> None:
    query = sa.select(model_versions.c.number).where(model_versions.c.name == model, model_versions.c.number == version)
    locked = query.with_for_update(read=True)  # the version must not be deleted before the alias refers to it
    if connection.execute(locked).one_or_none() is None:
        raise NotFound(f"model {model!r} has no version {version}", hint=f"octet models {model} lists them")


def _insert(connection: sa.Connection, alias: Alias) -> bool:
    """Inserts an alias. Returns false if the model has an alias of that name already."""
    statement = insert_new(connection, model_aliases).values(model=alias.model, name=alias.name, **_values(alias))
    return connection.execute(statement.returning(model_aliases.c.name)).one_or_none() is not None


def take_versions(
    connection: sa.Connection, model: str, versions: Collection[int], force: bool, now: datetime
) -> list[str]:
    """Removes deleted versions from a model's aliases. Deletes aliases without a version, and returns their names.

    Raises:
        Conflict: a version answers for an alias, and `force` is false.
    """
    gone = []
    query = sa.select(model_aliases).where(model_aliases.c.model == model).with_for_update()
    for alias in map(_alias_from, connection.execute(query).all()):
        if not force and (answering := sorted(set(alias.versions) & set(versions))):
            raise Conflict(
                f"alias {alias.name!r} of model {model!r} points at version {answering[0]}",
                hint="promote another version first, or force the deletion: octet rm --force, ?force=true",
            )
        left = alias.without(versions, now)
        if left is None:
            connection.execute(sa.delete(model_aliases).where(*_is(model, alias.name)))
            gone.append(alias.name)
        elif left != alias:
            connection.execute(sa.update(model_aliases).where(*_is(model, alias.name)).values(**_values(left)))
    return gone


def _values(alias: Alias) -> dict[str, object]:
    return {
        "version": alias.version,
        "canary": alias.canary,
        "canary_percent": alias.canary_percent,
        "previous": list(alias.previous),
        "changed_at": alias.changed_at,
    }


def _alias_from(row: Row) -> Alias:
    return Alias(row.model, row.name, row.version, row.changed_at, row.canary, row.canary_percent, tuple(row.previous))
