"""The builds table as a cache and a history; as a queue it is `service.db.build_queue`."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from service.core.build import Build, BuildEvent, BuildInputs, BuildState
from service.core.digest import Digest
from service.core.errors import Different
from service.core.quantization import is_quantization, quantization_of
from service.core.tenant import owner_of, prefix_of
from service.core.verification import Verification
from service.db import claims
from service.db.bell import ring
from service.db.build_queue import BuildQueue
from service.db.database import insert_new, repeated, repeated_if_undone
from service.db.finding import as_asked, build_as_asked, by_id, one
from service.db.requests import is_wanted, withdraw
from service.db.rows import Row, append_event, build_from, change, event_from, position
from service.db.statistics import Statistics, statistics
from service.db.tables import build_events, build_requests, builds, is_live, is_unfinished
from service.db.verifications import is_unverified, refusing, unverified

# `list` is a method below.
Builds = list[Build]
Events = list[BuildEvent]
Digests = list[Digest]
Requests = list[tuple[str, int, datetime]]  # model, version, when it asked last


class BuildStore(BuildQueue):
    """The table of builds, for the API that requests them and the workers that run them.

    Wherever a method takes a build's id, the beginning of one will do, if no other build's id begins so; it raises
    `InvalidInput` where another does.
    """

    @repeated
    def submit(self, inputs: BuildInputs, model: str, version: int) -> tuple[Build, bool]:
        """The build that answers `inputs`, and whether it had to be created.

        A build with the same key that is queued, running or has succeeded is that build, whichever model requested it;
        one that failed, was canceled or lost its artifact is not. A cancellation that has not taken effect is
        withdrawn. Either way (`model`, `version`) is on record as wanting it, and it is what they asked for last.

        The model's tenant is part of the key, whatever `inputs` say.
        """
        inputs = replace(inputs, tenant=owner_of(model))
        while True:
            with self._database.write() as connection:
                now = self._now(connection)
                row = _live(connection, inputs.key)
                created = row is None
                if row is None:
                    row = _insert(connection, _new(inputs, model, version, now))
                    if row is None:
                        continue  # another process was faster, on a database where rows are locked and not all
                    append_event(connection, row.sequence, now, "state", state=BuildState.QUEUED)
                elif row.cancel_requested and row.state == BuildState.RUNNING:
                    change(connection, row.sequence, cancel_requested=False)
                    append_event(connection, row.sequence, now, "log", line="requested again: no longer canceled")
                _request(connection, row.sequence, model, version, now)
                build = build_from(one(connection, builds.c.sequence == row.sequence))
            return replace(build, model=model, version=version), created

    @repeated
    def get(self, id: str) -> Build:
        """The build; `model` and `version` are those that asked first. Raises `NotFound`."""
        with self._database.read() as connection:
            return build_from(by_id(connection, id))

    @repeated
    def list(
        self,
        model: str | None = None,
        state: BuildState | None = None,
        limit: int = 50,
        cursor: str | None = None,
        tenant: str = "",
    ) -> tuple[Builds, str | None]:
        """A page of builds, newest first, and the cursor of the next page if there is one.

        Args:
            model: only those that versions of it asked for; `model` and `version` are then of the asking version.
            tenant: only those for its models; empty: all.

        Raises:
            InvalidInput: `cursor` is not one.
        """
        query = sa.select(builds).order_by(builds.c.sequence.desc()).limit(limit + 1)
        query = query.where(is_wanted) if model is None else as_asked(query).where(build_requests.c.model == model)
        if state is not None:
            query = query.where(builds.c.state == state)
        if tenant:
            query = query.where(builds.c.model.startswith(prefix_of(tenant), autoescape=True))
        if cursor is not None:
            query = query.where(builds.c.sequence < position(cursor))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        page = rows[:limit]
        return [build_as_asked(row) for row in page], str(page[-1].sequence) if len(rows) > limit else None

    @repeated
    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> Builds:
        """The verified builds, which can answer predictions, what was asked for last first; `version` None means every
        version, the newest first. `model` and `version` of each are those that were asked about.
        """
        query = (
            as_asked(sa.select(builds))
            .where(build_requests.c.model == model, builds.c.target.in_(targets))
            .where(builds.c.state == BuildState.SUCCEEDED, sa.not_(builds.c.invalidated), sa.not_(is_unverified))
            .order_by(build_requests.c.version.desc(), build_requests.c.sequence.desc())
        )
        if version is not None:
            query = query.where(build_requests.c.version == version)
        with self._database.read() as connection:
            found = [build_as_asked(row) for row in connection.execute(query)]
        return [build for build in found if not is_quantization(build.options)]

    @repeated
    def unverified(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """Those of the artifacts that wait for a worker's verification, or failed it."""
        with self._database.read() as connection:
            return unverified(connection, artifacts)

    @repeated
    def refusing(self, artifacts: Collection[Digest]) -> Collection[tuple[Digest, str]]:
        """Artifacts and the pools on which they do not compute what they should."""
        with self._database.read() as connection:
            return refusing(connection, artifacts)

    @repeated
    def answering(self, artifact: Digest) -> Builds:
        """The builds that answer with `artifact`, as they were asked for, the last first."""
        query = (
            as_asked(sa.select(builds))
            .where(builds.c.artifact == artifact, is_live)
            .order_by(build_requests.c.sequence.desc())
        )
        with self._database.read() as connection:
            return [build_as_asked(row) for row in connection.execute(query)]

    @repeated
    def cancel(self, id: str) -> Build:
        """Cancels a build for all models that requested it: at once if no worker has it, else at its worker's next
        check. One that is over stays as it is. Raises `NotFound`.
        """
        with self._database.write() as connection:
            row, now = by_id(connection, id, lock=True), self._now(connection)
            silent = row.state == BuildState.RUNNING and row.lease_until < now
            if row.state == BuildState.QUEUED or silent:
                change(connection, row.sequence, cancel_requested=True)
                claims.end(connection, row, now, BuildState.CANCELED)
            elif row.state == BuildState.RUNNING and not row.cancel_requested:
                change(connection, row.sequence, cancel_requested=True)
                append_event(connection, row.sequence, now, "log", line="cancel requested")
                ring(connection)
            return build_from(by_id(connection, id))

    @repeated
    def events(self, id: str, after: int = 0) -> Events:
        """A build's history after the event with this sequence number, oldest first. Raises `NotFound`.

        Kinds and data: `state` {state, attempt?, owner?, artifact?, error?}, `stage` and `progress` {stage, fraction},
        `log` {line}.
        """
        with self._database.read() as connection:
            build = by_id(connection, id).sequence
            query = (
                sa.select(build_events)
                .where(build_events.c.build == build, build_events.c.sequence > after)
                .order_by(build_events.c.sequence)
            )
            return [event_from(row) for row in connection.execute(query)]

    @repeated_if_undone
    def invalidate(self, artifact: Digest) -> Builds:
        """The artifact is lost or damaged: its builds answer no question any more. Those that did until now."""
        query = sa.select(builds).where(builds.c.artifact == artifact, sa.not_(builds.c.invalidated))
        with self._database.write() as connection:
            rows, now = connection.execute(query.with_for_update()).all(), self._now(connection)
            for row in rows:
                change(connection, row.sequence, invalidated=True)
                line = f"artifact {artifact} was lost or damaged; it is not used any more"
                append_event(connection, row.sequence, now, "log", line=line)
        return [replace(build_from(row), invalidated=True) for row in rows]

    @repeated
    def artifacts(self) -> Digests:
        """Every artifact that a build may still answer with: what the garbage collector must spare."""
        query = sa.select(builds.c.artifact).where(is_live, builds.c.artifact.is_not(None)).distinct()
        with self._database.read() as connection:
            return [Digest(artifact) for artifact in connection.execute(query).scalars()]

    @repeated
    def statistics(self, buckets_s: Sequence[float] = ()) -> Statistics:
        """The statistics for the metrics. Counts only grow, also across restarts.

        Args:
            buckets_s: upper bounds of the histogram of stage durations, ascending.
        """
        with self._database.read() as connection:
            return statistics(connection, buckets_s)

    @repeated
    def requests(self, id: str) -> Requests:
        """The model versions that requested a build, each with its latest request; the earliest requester first."""
        return self.requests_of([id])[id]

    @repeated
    def withdraw(self, model: str, version: int) -> None:
        """Withdraws the version's requests. Builds without other requests are canceled, and never found again."""
        with self._database.write() as connection:
            withdraw(connection, model, [version], self._now(connection))

    def wanted_by(self, models: Collection[str]) -> Builds:
        """Every build that versions of these models want, as they asked for it; what was asked for last first. Those
        that quantize are not among them: they make other versions.
        """
        return [build for build in self._wanted_by(models) if not is_quantization(build.options)]

    def quantizations(self, model: str) -> Builds:
        """Every build that quantizes a version of the model, what was asked for last first."""
        return [build for build in self._wanted_by({model}) if is_quantization(build.options)]

    @repeated
    def quantizations_of(self, tenant: str) -> Builds:
        """Those for a tenant's models that wait, run or answer: they keep their calibration sets and results."""
        own = builds.c.model.startswith(prefix_of(tenant), autoescape=True)
        with self._database.read() as connection:
            rows = connection.execute(sa.select(builds).where(is_live, own)).all()
        return [build_from(row) for row in rows if is_quantization(row.options)]

    @repeated
    def _wanted_by(self, models: Collection[str]) -> Builds:
        query = as_asked(sa.select(builds)).where(build_requests.c.model.in_(models))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(build_requests.c.sequence.desc())).all()
        return [build_as_asked(row) for row in rows]

    @repeated
    def calibration_sets(self) -> Digests:
        """Of the quantizations that wait or run: the garbage collector must spare them."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(builds.c.options).where(is_unfinished)).scalars().all()
        asked = filter(None, map(quantization_of, rows))
        return [each.data for each in asked if each.data is not None]

    @repeated
    def requests_of(self, ids: Collection[str]) -> dict[str, Requests]:
        """`requests` of several builds, by id."""
        found: dict[str, Requests] = {id: [] for id in ids}
        query = (
            sa.select(builds.c.id, build_requests.c.model, build_requests.c.version, build_requests.c.asked_at)
            .join(builds, build_requests.c.build == builds.c.sequence)
            .where(builds.c.id.in_(ids))
            .order_by(build_requests.c.sequence)
        )
        with self._database.read() as connection:
            for id, model, version, asked_at in connection.execute(query):
                found[id].append((model, version, asked_at))
        return found

    @repeated_if_undone
    def restore(
        self,
        inputs: BuildInputs,
        key: Digest,
        artifact: Digest,
        requests: Iterable[tuple[str, int, datetime]],
        different: Different | None = None,
    ) -> bool:
        """Puts a build with an artifact on record whose row was lost with a database; whether it was.

        Args:
            inputs: as far as they are still known; `key` is the one that they had.
            requests: at least one, as `requests` returned them.
            different: why the artifact is not served, if it differs from its reference.
        """
        requests = list(requests)
        model, version, asked_at = requests[0]
        with self._database.write() as connection:
            known = sa.select(builds.c.sequence).where(builds.c.key == key, builds.c.artifact == artifact).limit(1)
            if connection.execute(known).first() is not None or _live(connection, key) is not None:
                return False
            values = _new(inputs, model, version, asked_at)
            values |= {"key": key, "state": BuildState.SUCCEEDED, "artifact": artifact, "progress": 1.0}
            values |= {"started_at": asked_at, "finished_at": asked_at}
            if different is not None:
                values |= {"state": BuildState.DIFFERENT, "error": different.to_json()}
            row = _insert(connection, values)
            if row is None:
                return False
            append_event(connection, row.sequence, self._now(connection), "log", line="restored from the store's index")
            for request in requests:
                _request(connection, row.sequence, *request)
        return True


def _new(inputs: BuildInputs, model: str, version: int, now: datetime) -> dict[str, object]:
    return {
        "id": uuid.uuid4().hex,
        "key": inputs.key,
        "model": model,
        "version": version,
        "source": inputs.source,
        "target": inputs.target,
        "numerics": inputs.numerics,
        "toolchain": dict(inputs.toolchain),
        "options": dict(inputs.options),
        "background": inputs.background,
        "state": BuildState.QUEUED,
        "progress": 0.0,
        "attempt": 0,
        "cancel_requested": False,
        "invalidated": False,
        "token": 0,
        "last_event": 0,
        "created_at": now,
    }


def _insert(connection: sa.Connection, values: dict[str, object]) -> Row | None:
    """The new row; None if another process has inserted a live build of this key meanwhile."""
    return connection.execute(insert_new(connection, builds).values(**values).returning(builds)).one_or_none()


def _request(connection: sa.Connection, build: int, model: str, version: int, now: datetime) -> None:
    """Records that the version requests the build: as a new row, so that it has the highest number."""
    same = (
        build_requests.c.model == model,
        build_requests.c.version == version,
        build_requests.c.build == build,
    )
    connection.execute(sa.delete(build_requests).where(*same))
    connection.execute(sa.insert(build_requests).values(model=model, version=version, build=build, asked_at=now))


def _live(connection: sa.Connection, key: Digest) -> Row | None:
    query = sa.select(builds).where(builds.c.key == key, is_live).with_for_update()
    return connection.execute(query).one_or_none()
