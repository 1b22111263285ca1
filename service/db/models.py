"""The table of models and their versions."""

from __future__ import annotations

from dataclasses import replace

import sqlalchemy as sa

from service.core.access.tenant import prefix_of
from service.core.clock import Clock
from service.core.digest import Digest
from service.core.errors import NotFound
from service.core.models.metadata import ModelMetadata
from service.core.models.model import Deleted, ModelVersion
from service.db.aliases import take_versions
from service.db.builds.requests import withdraw
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.rows import Row
from service.db.tables import deleted_versions, live_counts, model_versions

# `list` is a method below.
Versions = list[ModelVersion]
Digests = list[Digest]


class ModelStore:
    """The table of the versions of models. A model exists as long as it has a version."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    @repeated
    def push(self, name: str, source: Digest, format: str, size_bytes: int) -> ModelVersion:
        """Records that a file was pushed. Returns the new version, or the existing one if it was pushed before."""
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
        """Updates the metadata of a version, and returns the version. Members missing in `metadata` do not change.

        Raises:
            NotFound: the model or the version does not exist.
        """
        with self._database.write() as connection:
            _numbers(connection, name, number)
            one = sa.and_(model_versions.c.name == name, model_versions.c.number == number)
            known = _first(connection, one)
            assert known is not None  # _numbers has found and locked the model
            described = replace(known, metadata=metadata.over(known.metadata))
            connection.execute(sa.update(model_versions).where(one).values(metadata=described.metadata.to_text()))
        return described

    @repeated
    def metadata(self, name: str, number: int) -> ModelMetadata:
        """Returns the stored metadata of a version; empty if the version does not exist."""
        query = sa.select(model_versions.c.metadata)
        query = query.where(model_versions.c.name == name, model_versions.c.number == number)
        with self._database.read() as connection:
            return ModelMetadata.from_text(connection.execute(query).scalar_one_or_none() or "")

    @repeated
    def get(self, name: str) -> ModelVersion:
        """Returns the newest version of a model. Raises `NotFound` if the model does not exist."""
        with self._database.read() as connection:
            return _found(_newest(connection, name), name)

    @repeated
    def version(self, name: str, number: int) -> ModelVersion:
        """Returns a version of a model. Raises `NotFound` if it does not exist."""
        with self._database.read() as connection:
            version = _first(connection, model_versions.c.name == name, model_versions.c.number == number)
            if version is None:
                _found(_newest(connection, name), name)
                raise NotFound(f"model {name!r} has no version {number}")
            return version

    @repeated
    def versions(self, name: str) -> Versions:
        """Returns the versions of a model, the newest first. Raises `NotFound` if the model does not exist."""
        query = sa.select(model_versions).where(model_versions.c.name == name).order_by(model_versions.c.number.desc())
        with self._database.read() as connection:
            versions = [_version_from(row) for row in connection.execute(query)]
        _found(versions[0] if versions else None, name)
        return versions

    @repeated
    def list(self, limit: int = 50, cursor: str | None = None, tenant: str = "") -> tuple[Versions, str | None]:
        """Returns a page of models by name, each as its newest version, and the cursor of the next page, or None.

        Args:
            tenant: the tenant whose models are listed; empty for all.
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
        """Returns every version of every model, sorted by name and version number."""
        query = sa.select(model_versions).order_by(model_versions.c.name, model_versions.c.number)
        with self._database.read() as connection:
            return [_version_from(row) for row in connection.execute(query)]

    @repeated
    def sources(self, tenant: str = "") -> Digests:
        """Returns every model file of a tenant, or of all tenants. The garbage collector must not delete them."""
        query = sa.select(model_versions.c.source)
        if tenant:
            query = query.where(model_versions.c.name.startswith(prefix_of(tenant), autoescape=True))
        with self._database.read() as connection:
            return [Digest(source) for source in connection.execute(query).scalars()]

    @repeated
    def file_sizes(self, tenant: str) -> dict[Digest, int]:
        """Returns the size in bytes of each of a tenant's model files."""
        query = sa.select(model_versions.c.source, model_versions.c.size_bytes).where(
            model_versions.c.name.startswith(prefix_of(tenant), autoescape=True)
        )
        with self._database.read() as connection:
            return {Digest(row.source): row.size_bytes for row in connection.execute(query)}

    @repeated
    def tokenizer_sizes(self, tenant: str = "") -> dict[Digest, int]:
        """Returns the size in bytes of each tokenizer that a version of a tenant, or of any tenant, has. The garbage
        collector must not delete these files.
        """
        query = sa.select(model_versions.c.metadata).where(model_versions.c.metadata.contains('"tokenizer"'))
        if tenant:
            query = query.where(model_versions.c.name.startswith(prefix_of(tenant), autoescape=True))
        with self._database.read() as connection:
            texts = [ModelMetadata.from_text(text).text for text in connection.execute(query).scalars()]
        return {text.tokenizer: text.tokenizer_bytes for text in texts if text.tokenizer is not None}

    @repeated_if_undone
    def delete(self, name: str, number: int | None = None, *, force: bool = False) -> Deleted:
        """Deletes a model, or one version of it, and its requests of builds, in one transaction.

        Builds that other versions requested too stay. Builds without requests are canceled, and no query finds them
        again. The number of a deleted version is never reused.

        Args:
            force: True to delete the model or version even if an alias points at it. An alias without a version is
                deleted too.

        Raises:
            NotFound: the model or the version does not exist.
            Conflict: an alias points at the version, and `force` is false.
        """
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            numbers = _numbers(connection, name, number)
            aliases = take_versions(connection, name, numbers, force, now)
            builds = withdraw(connection, name, numbers, now)
            doomed = model_versions.c.name == name, model_versions.c.number.in_(numbers)
            connection.execute(sa.delete(model_versions).where(*doomed))
            counted = live_counts.c.model == name, live_counts.c.version.in_(numbers)
            connection.execute(sa.delete(live_counts).where(*counted))
            _note_deleted(connection, name, max(numbers))
        return Deleted(name, tuple(numbers), tuple(aliases), builds)

    @repeated_if_undone
    def restore(self, version: ModelVersion) -> bool:
        """Restores the row of a version after a database was lost. Returns false if the version exists already."""
        with self._database.write() as connection:
            return _insert(connection, version)


def _version_from(row: Row) -> ModelVersion:
    metadata = ModelMetadata.from_text(row.metadata)
    return ModelVersion(row.name, row.number, Digest(row.source), row.format, row.size_bytes, row.created_at, metadata)


def _first(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> ModelVersion | None:
    row = connection.execute(sa.select(model_versions).where(*conditions)).one_or_none()
    return None if row is None else _version_from(row)


def _numbers(connection: sa.Connection, name: str, number: int | None) -> list[int]:
    """Returns the version numbers of a model in ascending order, or only `number`, and locks the model's versions.

    Raises:
        NotFound: the model or the version does not exist.
    """
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
    """Records the highest deleted number for the next push. The caller has locked the rows of the model's versions."""
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
    """Inserts a version. Returns false if the number is taken, or if the file is a version of the model already."""
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
