"""The tables, in the form that the newest migration produces. A test compares the two."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from service.core.builds.build import BuildState

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = sa.MetaData(naming_convention=NAMING)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A time in UTC, with its time zone in Python.

    SQLite has no time zones. It stores the times as text, whose order is the order of the times.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


# SQLite numbers rows itself only if the key is of type INTEGER. In PostgreSQL, the numbers of that type would run out.
_RowNumber = sa.BigInteger().with_variant(sa.Integer, "sqlite")

model_versions = sa.Table(
    "model_versions",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("metadata", sa.Text, nullable=False, server_default=""),  # JSON; see core.models.metadata
    sa.UniqueConstraint("name", "source"),
)

# The highest number of a model's deleted versions. No number is reused, because clients may have cached responses.
deleted_versions = sa.Table(
    "deleted_versions",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("highest", sa.Integer, nullable=False),
)

# Aliases of versions, such as `stable`; see core.models.alias.
model_aliases = sa.Table(
    "model_aliases",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("canary", sa.Integer),
    sa.Column("canary_percent", sa.Integer, nullable=False),
    sa.Column("previous", sa.JSON, nullable=False),
    sa.Column("changed_at", UtcDateTime, nullable=False),
)

builds = sa.Table(
    "builds",
    metadata,
    sa.Column("sequence", _RowNumber, primary_key=True),  # the order of the requests
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),  # the first requester; see build_requests
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("numerics", sa.Text, nullable=False),
    sa.Column("toolchain", sa.JSON, nullable=False),
    sa.Column("options", sa.JSON, nullable=False),
    sa.Column("background", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("stage", sa.Text),
    sa.Column("progress", sa.Float, nullable=False),
    sa.Column("artifact", sa.Text, index=True),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("invalidated", sa.Boolean, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False),  # grows with every claim; an older token is stale
    sa.Column("lease_until", UtcDateTime),
    sa.Column("last_event", sa.Integer, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("started_at", UtcDateTime),
    sa.Column("stage_started_at", UtcDateTime),
    sa.Column("finished_at", UtcDateTime),
    sa.Index("ix_builds_state_sequence", "state", "sequence"),
    sqlite_autoincrement=True,
)

# The builds that have a valid result or may still get one. There is at most one for each key, which the index below
# enforces. Queries contain the states as literals (`literal_execute`), because SQLite would not use the index with
# parameters instead.
_LIVE_STATES = [
    state.value for state in (BuildState.QUEUED, BuildState.RUNNING, BuildState.SUCCEEDED, BuildState.DIFFERENT)
]
is_live = sa.and_(
    builds.c.state.in_(sa.bindparam("live_states", _LIVE_STATES, expanding=True, literal_execute=True)),
    sa.not_(builds.c.invalidated),
)
# The migration creates the index on PostgreSQL too, with `postgresql_where`. If that option were also set here, every
# process that uses the tables would load the PostgreSQL dialect.
sa.Index("uq_builds_live_key", builds.c.key, unique=True, sqlite_where=is_live)

# The builds among which `claims.claim` finds the next one. The condition is literal SQL so that SQLite uses the index.
is_unfinished = sa.text("builds.state IN ('queued', 'running')")
sa.Index(
    "ix_builds_claim_order",
    builds.c.background,
    builds.c.sequence,
    sqlite_where=sa.text("state IN ('queued', 'running')"),
)

# The oldest migration whose release of Octet can work with these tables; see migrations.
schema_floor = sa.Table("schema_floor", metadata, sa.Column("oldest", sa.Text, nullable=False))

# The requests of builds by model versions, which may share a build. The newest row of a version is its latest request.
build_requests = sa.Table(
    "build_requests",
    metadata,
    sa.Column("sequence", _RowNumber, primary_key=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("build", _RowNumber, sa.ForeignKey("builds.sequence", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("asked_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("model", "version", "build"),
    sqlite_autoincrement=True,
)

build_events = sa.Table(
    "build_events",
    metadata,
    sa.Column("build", _RowNumber, sa.ForeignKey("builds.sequence", ondelete="CASCADE"), primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
)

# The duration of each finished stage, for the metrics.
build_stages = sa.Table(
    "build_stages",
    metadata,
    sa.Column("sequence", _RowNumber, primary_key=True),
    sa.Column("build", _RowNumber, sa.ForeignKey("builds.sequence", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("stage", sa.Text, nullable=False),
    sa.Column("duration_s", sa.Float, nullable=False),
)

# The verifications, by workers of the target, of artifacts that the machine of the build could not run; see
# core.verification.
verifications = sa.Table(
    "verifications",
    metadata,
    sa.Column("artifact", sa.Text, primary_key=True),
    sa.Column("pool", sa.Text, primary_key=True),  # if empty, any worker of the target may verify
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("worker", sa.Text),
    sa.Column("token", sa.BigInteger, nullable=False),  # the fencing token, as in the table of builds
    sa.Column("lease_until", UtcDateTime),
    sa.Column("result", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("finished_at", UtcDateTime),
    sa.Index("ix_verifications_state_created_at", "state", "created_at"),
)

# The worker processes, with their last heartbeats and their capabilities; see core.cluster.worker.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("target", sa.Text),
    sa.Column("build", sa.Text),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("seen_at", UtcDateTime, nullable=False, index=True),
    sa.Column("pool", sa.Text),
    sa.Column("address", sa.Text),
    sa.Column("features", sa.JSON(none_as_null=True)),
    sa.Column("capacity", sa.Integer, nullable=False, server_default="0"),
    sa.Column("loaded", sa.JSON(none_as_null=True)),
    sa.Column("loaded_version", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("release", sa.Text, nullable=False, server_default=""),
    sa.Column("state", sa.Text, nullable=False, server_default="ready"),
)

# The counts of the values that requests caused, by the artifact that counted them and the day; see core.models.ranges.
live_counts = sa.Table(
    "live_counts",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("artifact", sa.Text, primary_key=True),
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("samples", sa.BigInteger, nullable=False),
    sa.Column("dropped", sa.BigInteger, nullable=False),
    sa.Column("ranges", sa.JSON, nullable=False),
    sa.Column("counts", sa.JSON, nullable=False),
)

# Prediction jobs with their results, as JSON text; see core.models.job. `size_bytes` counts what limits bound.
prediction_jobs = sa.Table(
    "prediction_jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("samples", sa.Integer, nullable=False),
    sa.Column("completed", sa.Integer, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("alive_at", UtcDateTime, nullable=False),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("error", sa.JSON(none_as_null=True)),
    sa.Column("result", sa.Text),
    sa.Index("ix_prediction_jobs_tenant_key", "tenant", "key"),
    sa.Index("ix_prediction_jobs_ended_at", "ended_at"),
)

# API keys, of which only the SHA-256 is stored. With SQLite, a file contains them instead.
api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("requests_per_s", sa.Float),
    sa.Column("requests_per_day", sa.BigInteger),
    sa.Column("tenant", sa.Text, nullable=False, server_default=""),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("revoked_at", UtcDateTime),
)

# The number of requests of a key that each replica admitted on a day, and the time of the replica's last report.
key_usage = sa.Table(
    "key_usage",
    metadata,
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("replica", sa.Text, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("seen_at", UtcDateTime, nullable=False),
)

# The audit log of changes. Rows are only added.
audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("sequence", _RowNumber, primary_key=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),  # unique, so that an entry that is sent twice is stored once
    sa.Column("tenant", sa.Text, nullable=False, server_default=""),
    sa.Column("entry", sa.JSON, nullable=False),
    sa.Index("ix_audit_log_tenant_sequence", "tenant", "sequence"),
    sqlite_autoincrement=True,
)

# The crash records of artifacts that were running when a data plane crashed, as JSON; see core.cluster.crash.
crash_records = sa.Table(
    "crash_records",
    metadata,
    sa.Column("artifact", sa.Text, primary_key=True),
    sa.Column("record", sa.JSON, nullable=False),
)
