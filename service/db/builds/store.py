"""The builds table as a cache of results and a history. `service.db.builds.queue` uses it as a queue."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from service.core.access.tenant import owner_of, prefix_of
from service.core.builds.build import Build, BuildEvent, BuildInputs, BuildState
from service.core.builds.options import COUNTS, counts_values
from service.core.builds.quantization import is_quantization, quantization_of
from service.core.digest import Digest
from service.core.errors import Different
from service.core.verification.jobs import Verification
from service.db.builds import claims
from service.db.builds.finding import build_with_request, by_id, one, with_requests
from service.db.builds.queue import BuildQueue
from service.db.builds.requests import is_wanted, withdraw
from service.db.database import insert_new, repeated, repeated_if_undone
from service.db.engines.notifications import notify
from service.db.rows import Row, append_event, build_from, change, event_from, position
from service.db.statistics import Statistics, statistics
from service.db.tables import build_events, build_requests, builds, is_live, is_unfinished
from service.db.verifications import is_unverified, refusing, unverified

# `list` is a method below.
Builds = list[Build]
Events = list[BuildEvent]
Digests = list[Digest]
Requests = list[tuple[str, int, datetime]]  # model, version, time of its latest request


class BuildStore(BuildQueue):
    """The table of builds, for the API that requests builds and the workers that run them.

    Methods that take a build's id also accept an unambiguous prefix of it, and raise `InvalidInput` for an ambiguous
    one.
    """

    @repeated
    def submit(self, inputs: BuildInputs, model: str, version: int) -> tuple[Build, bool]:
        """Returns the build for `inputs`, and true if it had to be created.

        An existing build with the same key is reused if it is queued, running, or has an artifact, whichever model
        requested it. A build that failed, was canceled or lost its artifact is not reused. A cancellation that has not
        taken effect yet is withdrawn. In every case the request of (`model`, `version`) is recorded as the latest
        request of this version.

        The key contains the model's tenant; the tenant in `inputs` is ignored.
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
                        continue  # another process has inserted the build: PostgreSQL locks rows, not the table
                    append_event(connection, row.sequence, now, "state", state=BuildState.QUEUED)
                elif row.cancel_requested and row.state == BuildState.RUNNING:
                    change(connection, row.sequence, cancel_requested=False)
                    append_event(connection, row.sequence, now, "log", line="requested again: no longer canceled")
                _request(connection, row.sequence, model, version, now)
                build = build_from(one(connection, builds.c.sequence == row.sequence))
            return replace(build, model=model, version=version), created

    @repeated
    def get(self, id: str) -> Build:
        """Returns the build, with the model and version that requested it first.

        Raises:
            NotFound: no build has this id.
        """
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
        counting: bool = False,
    ) -> tuple[Builds, str | None]:
        """Returns a page of builds, newest first, and the cursor of the next page; None on the last page.

        Args:
            model: list only builds that versions of this model requested. `model` and `version` of each build are then
                those of the request.
            tenant: list only builds for models of this tenant; empty for all.
            counting: also list builds that count values, whose artifacts are not served.

        Raises:
            InvalidInput: `cursor` is not a valid cursor.
        """
        query = sa.select(builds).order_by(builds.c.sequence.desc()).limit(limit + 1)
        query = query.where(is_wanted) if model is None else with_requests(query).where(build_requests.c.model == model)
        if state is not None:
            query = query.where(builds.c.state == state)
        if not counting:
            query = query.where(sa.not_(sa.func.coalesce(builds.c.options[COUNTS].as_boolean(), sa.false())))
        if tenant:
            query = query.where(builds.c.model.startswith(prefix_of(tenant), autoescape=True))
        if cursor is not None:
            query = query.where(builds.c.sequence < position(cursor))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        page = rows[:limit]
        return [build_with_request(row) for row in page], str(page[-1].sequence) if len(rows) > limit else None

    @repeated
    def serving(self, model: str, version: int | None, targets: Sequence[str]) -> Builds:
        """Returns the verified builds of a model, which can answer predictions; the latest request first.

        `model` and `version` of each build are those of the request.

        Args:
            version: the version whose builds are returned; None for all versions, the newest first.
        """
        query = (
            with_requests(sa.select(builds))
            .where(build_requests.c.model == model, builds.c.target.in_(targets))
            .where(builds.c.state == BuildState.SUCCEEDED, sa.not_(builds.c.invalidated), sa.not_(is_unverified))
            .order_by(build_requests.c.version.desc(), build_requests.c.sequence.desc())
        )
        if version is not None:
            query = query.where(build_requests.c.version == version)
        with self._database.read() as connection:
            found = [build_with_request(row) for row in connection.execute(query)]
        return [build for build in found if not is_quantization(build.options) and not counts_values(build.options)]

    @repeated
    def counting(self, model: str, version: int) -> Builds:
        """Returns the builds that count the values of a version, in any state, the latest request first."""
        query = (
            with_requests(sa.select(builds))
            .where(build_requests.c.model == model, build_requests.c.version == version)
            .where(sa.not_(builds.c.invalidated))
            .order_by(build_requests.c.sequence.desc())
        )
        with self._database.read() as connection:
            found = [build_with_request(row) for row in connection.execute(query)]
        return [build for build in found if counts_values(build.options)]

    @repeated
    def unverified(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """Returns the verifications of those artifacts that wait for a worker's verification, or failed it."""
        with self._database.read() as connection:
            return unverified(connection, artifacts)

    @repeated
    def refusing(self, artifacts: Collection[Digest]) -> Collection[tuple[Digest, str]]:
        """Returns pairs of an artifact and a pool on whose workers the artifact computes wrong results."""
        with self._database.read() as connection:
            return refusing(connection, artifacts)

    @repeated
    def with_artifact(self, artifact: Digest) -> Builds:
        """Returns the builds whose result is `artifact`, once for each request, the latest request first."""
        query = (
            with_requests(sa.select(builds))
            .where(builds.c.artifact == artifact, is_live)
            .order_by(build_requests.c.sequence.desc())
        )
        with self._database.read() as connection:
            return [build_with_request(row) for row in connection.execute(query)]

    @repeated
    def cancel(self, id: str) -> Build:
        """Cancels a build for all models that requested it.

        If a worker holds the build, the build stops at the worker's next check; otherwise it is canceled at once. A
        build that has ended does not change.

        Raises:
            NotFound: no build has this id.
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
                notify(connection)
            return build_from(by_id(connection, id))

    @repeated
    def events(self, id: str, after: int = 0) -> Events:
        """Returns a build's history after the event with the sequence number `after`, oldest first.

        The kinds of events and their data are: `state` {state, attempt?, owner?, artifact?, error?}, `stage` and
        `progress` {stage, fraction}, `log` {line}.

        Raises:
            NotFound: no build has this id.
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
        """Marks the builds of a lost or damaged artifact, so that they are not reused. Returns the builds that it
        marked.
        """
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
        """Returns every artifact that is the result of a valid build. The garbage collector must not delete them."""
        query = sa.select(builds.c.artifact).where(is_live, builds.c.artifact.is_not(None)).distinct()
        with self._database.read() as connection:
            return [Digest(artifact) for artifact in connection.execute(query).scalars()]

    @repeated
    def statistics(self, buckets_s: Sequence[float] = ()) -> Statistics:
        """Returns the statistics for the metrics. Counts never decrease, even across restarts.

        Args:
            buckets_s: the upper bounds of the histogram of stage durations, ascending.
        """
        with self._database.read() as connection:
            return statistics(connection, buckets_s)

    @repeated
    def requests(self, id: str) -> Requests:
        """Returns the model versions that requested a build, with the times of their latest requests, in that order."""
        return self.requests_of([id])[id]

    @repeated
    def withdraw(self, model: str, version: int) -> None:
        """Withdraws a version's requests. Builds without other requests are canceled, and no query finds them again."""
        with self._database.write() as connection:
            withdraw(connection, model, [version], self._now(connection))

    def requested_by(self, models: Collection[str]) -> Builds:
        """Returns the builds that versions of these models requested, once for each request; the latest request first.

        Builds that quantize are left out, because their results are new versions. Builds that count values are left
        out, because they are not served.
        """
        found = self._requested_by(models)
        return [each for each in found if not is_quantization(each.options) and not counts_values(each.options)]

    def quantizations(self, model: str) -> Builds:
        """Returns the builds that quantize versions of the model, the latest request first."""
        return [build for build in self._requested_by({model}) if is_quantization(build.options)]

    @repeated
    def quantizations_of(self, tenant: str) -> Builds:
        """Returns the quantizations of a tenant's models that are queued, running or have a result. The calibration
        sets and results of these quantizations must be kept.
        """
        own = builds.c.model.startswith(prefix_of(tenant), autoescape=True)
        with self._database.read() as connection:
            rows = connection.execute(sa.select(builds).where(is_live, own)).all()
        return [build_from(row) for row in rows if is_quantization(row.options)]

    @repeated
    def _requested_by(self, models: Collection[str]) -> Builds:
        query = with_requests(sa.select(builds)).where(build_requests.c.model.in_(models))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(build_requests.c.sequence.desc())).all()
        return [build_with_request(row) for row in rows]

    @repeated
    def calibration_sets(self) -> Digests:
        """Returns the calibration sets of quantizations that are queued or running. The garbage collector must not
        delete them.
        """
        with self._database.read() as connection:
            rows = connection.execute(sa.select(builds.c.options).where(is_unfinished)).scalars().all()
        quantizations = filter(None, map(quantization_of, rows))
        return [each.data for each in quantizations if each.data is not None]

    @repeated
    def requests_of(self, ids: Collection[str]) -> dict[str, Requests]:
        """Returns the result of `requests` for several builds, by id."""
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
        """Restores the row of a build with an artifact after a database was lost. Returns true if a row was inserted.

        Args:
            inputs: the build's inputs as far as they are still known.
            key: the key of the original inputs.
            requests: at least one request, as `requests` returned them.
            different: the reason why the artifact is not served, if it differs from its reference.
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
    """Inserts a build and returns its row; None if another process has inserted a live build with this key."""
    return connection.execute(insert_new(connection, builds).values(**values).returning(builds)).one_or_none()


def _request(connection: sa.Connection, build: int, model: str, version: int, now: datetime) -> None:
    """Records a version's request of the build in a new row. The row gets the highest number, even if the version
    requests the build again.
    """
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
