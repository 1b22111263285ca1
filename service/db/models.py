"""Models and their versions."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.digest import Digest
from service.core.errors import NotFound
from service.core.metadata import ModelMetadata
from service.core.model import Deleted, ModelVersion
from service.core.tenant import prefix_of
from service.db.aliases import take_versions
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.requests import withdraw
from service.db.rows import Row
from service.db.tables import deleted_versions, model_versions

# `list` is a method below.
Versions = list[ModelVersion]
Digests = list[Digest]


class ModelStore:
    """The table of pushed models, by name. A name exists as long as it has a version."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    @repeated
    def push(self, name: str, source: Digest, format: str, size_bytes: int) -> ModelVersion:
        """The version of `name` that is this file: a new one, or the one that it was pushed as before."""
        while True:
            with self._database.write() as connection:
                known = _first(connection, model_versions.c.name == name, model_versions.c.source == source)
                if known is not None:
                    return known
                newest = _newest(connection, name)
                number = 1 + max(newest.number if newest else 0, _highest_deleted(connection, name))
                version = ModelVersion(
                    name, number, source, format, size_bytes, self._database.now(connection, self._clock)
                )
                if _insert(connection, version):
                    return version

    @repeated
    def describe(self, name: str, number: int, metadata: ModelMetadata) -> ModelVersion:
        """The version with what `metadata` says of it; of what that leaves out, with what was said before.

        Raises:
            NotFound: there is no such model or version.
        """
        with self._database.write() as connection:
            _numbers(connection, name, number)
            one = sa.and_(model_versions.c.name == name, model_versions.c.number == number)
            known = _first(connection, one)
            assert known is not None  # it is locked
            described = replace(known, metadata=metadata.over(known.metadata))
            connection.execute(sa.update(model_versions).where(one).values(metadata=described.metadata.to_text()))
        return described

    @repeated
    def metadata(self, name: str, number: int) -> ModelMetadata:
        """The stored metadata of a version; empty for an unknown version."""
        query = sa.select(model_versions.c.metadata)
        query = query.where(model_versions.c.name == name, model_versions.c.number == number)
        with self._database.read() as connection:
            return ModelMetadata.from_text(connection.execute(query).scalar_one_or_none() or "")

    @repeated
    def get(self, name: str) -> ModelVersion:
        """The newest version. Raises `NotFound`."""
        with self._database.read() as connection:
            return _found(_newest(connection, name), name)

    @repeated
    def version(self, name: str, number: int) -> ModelVersion:
        """Raises `NotFound`."""
        with self._database.read() as connection:
            version = _first(connection, model_versions.c.name == name, model_versions.c.number == number)
            if version is None:
                _found(_newest(connection, name), name)
                raise NotFound(f"model {name!r} has no version {number}")
            return version

    @repeated
    def versions(self, name: str) -> Versions:
        """Newest first. Raises `NotFound`."""
        query = sa.select(model_versions).where(model_versions.c.name == name).order_by(model_versions.c.number.desc())
        with self._database.read() as connection:
            versions = [_version_from(row) for row in connection.execute(query)]
        _found(versions[0] if versions else None, name)
        return versions

    @repeated
    def list(self, limit: int = 50, cursor: str | None = None, tenant: str = "") -> tuple[Versions, str | None]:
        """A page of models by name, each as its newest version, and the cursor of the next page if there is one.

        Args:
            tenant: only its models; empty: all.
        """
        newest = sa.select(model_versions.c.name, sa.func.max(model_versions.c.number).label("number")).group_by(
            model_versions.c.name
        )
        if tenant:
            newest = newest.where(model_versions.c.name.startswith(prefix_of(tenant), autoescape=True))
        if cursor is not None:
            newest = newest.where(model_versions.c.name > cursor)
        page = newest.order_by(model_versions.c.name).limit(limit + 1).subquery()
        same = sa.and_(model_versions.c.name == page.c.name, model_versions.c.number == page.c.number)
        query = sa.select(model_versions).join(page, same).order_by(model_versions.c.name)
        with self._database.read() as connection:
            models = [_version_from(row) for row in connection.execute(query)]
        return models[:limit], models[limit - 1].name if len(models) > limit else None

    @repeated
    def all_versions(self) -> Versions:
        """Every version of every model; by name, the oldest version first."""
        query = sa.select(model_versions).order_by(model_versions.c.name, model_versions.c.number)
        with self._database.read() as connection:
            return [_version_from(row) for row in connection.execute(query)]

    @repeated
    def sources(self, tenant: str = "") -> Digests:
        """Every model file, of a tenant or of all: what the garbage collector must spare."""
        query = sa.select(model_versions.c.source)
        if tenant:
            query = query.where(model_versions.c.name.startswith(prefix_of(tenant), autoescape=True))
        with self._database.read() as connection:
            return [Digest(source) for source in connection.execute(query).scalars()]

    @repeated
    def file_sizes(self, tenant: str) -> dict[Digest, int]:
        """The size in bytes of each of a tenant's model files."""
        query = sa.select(model_versions.c.source, model_versions.c.size_bytes).where(
            model_versions.c.name.startswith(prefix_of(tenant), autoescape=True)
        )
        with self._database.read() as connection:
            return {Digest(row.source): row.size_bytes for row in connection.execute(query)}

    @repeated_if_undone
    def delete(self, name: str, number: int | None = None, *, force: bool = False) -> Deleted:
        """Forgets a model, or one version of it, with what asked for builds on its behalf: all of it or nothing.

        Builds that others requested too stay. Builds without requests are canceled, and never found again.
        The number of a deleted version is never given to another.

        Args:
            force: also where an alias points at it. One that then stands for nothing is removed.

        Raises:
            NotFound: there is no such model or version.
            Conflict: an alias points at it.
        """
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            numbers = _numbers(connection, name, number)
            aliases = take_versions(connection, name, numbers, force, now)
            builds = withdraw(connection, name, numbers, now)
            doomed = model_versions.c.name == name, model_versions.c.number.in_(numbers)
            connection.execute(sa.delete(model_versions).where(*doomed))
            _note_deleted(connection, name, max(numbers))
        return Deleted(name, tuple(numbers), tuple(aliases), builds)

    @repeated_if_undone
    def restore(self, version: ModelVersion) -> bool:
        """Puts a version on record whose row was lost with a database; whether there was none of that number."""
        with self._database.write() as connection:
            return _insert(connection, version)


def _version_from(row: Row) -> ModelVersion:
    metadata = ModelMetadata.from_text(row.metadata)
    return ModelVersion(row.name, row.number, Digest(row.source), row.format, row.size_bytes, row.created_at, metadata)


def _first(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> ModelVersion | None:
    row = connection.execute(sa.select(model_versions).where(*conditions)).one_or_none()
    return None if row is None else _version_from(row)


def _numbers(connection: sa.Connection, name: str, number: int | None) -> list[int]:
    """The versions of a model, or the one that is named, locked; in ascending order. Raises `NotFound`."""
    query = sa.select(model_versions.c.number).where(model_versions.c.name == name).order_by(model_versions.c.number)
    found = list(connection.execute(query.with_for_update()).scalars())
    if not found:
        raise _no_model(name)
    if number is None:
        return found
    if number not in found:
        raise NotFound(f"model {name!r} has no version {number}", hint=f"octet models {name} lists them")
    return [number]


def _newest(connection: sa.Connection, name: str) -> ModelVersion | None:
    query = sa.select(model_versions).where(model_versions.c.name == name)
    row = connection.execute(query.order_by(model_versions.c.number.desc()).limit(1)).one_or_none()
    return None if row is None else _version_from(row)


def _highest_deleted(connection: sa.Connection, name: str) -> int:
    query = sa.select(deleted_versions.c.highest).where(deleted_versions.c.model == name)
    return connection.execute(query).scalar_one_or_none() or 0


def _note_deleted(connection: sa.Connection, name: str, number: int) -> None:
    """For the next push. The rows of the model's versions are locked."""
    highest = max(number, _highest_deleted(connection, name))
    connection.execute(insert_new(connection, deleted_versions).values(model=name, highest=highest))
    connection.execute(sa.update(deleted_versions).where(deleted_versions.c.model == name).values(highest=highest))


def _found(version: ModelVersion | None, name: str) -> ModelVersion:
    if version is None:
        raise _no_model(name)
    return version


def _no_model(name: str) -> NotFound:
    return NotFound(f"there is no model {name!r}", hint="octet models lists them")


def _insert(connection: sa.Connection, version: ModelVersion) -> bool:
    """Whether it was inserted; if not, the number is taken, or the file is a version already."""
    statement = insert_new(connection, model_versions).values(
        name=version.name,
        number=version.number,
        source=version.source,
        format=version.format,
        size_bytes=version.size_bytes,
        created_at=version.created_at,
        metadata=version.metadata.to_text(),
    )
    return connection.execute(statement.returning(model_versions.c.number)).one_or_none() is not None
