"""Adds builds, their events and their requests; models and their versions.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)
_LIVE_STATES = "state IN ('queued', 'running', 'succeeded')"


def upgrade() -> None:
    op.create_table(
        "model_versions",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", "number", name="pk_model_versions"),
        sa.UniqueConstraint("name", "source", name="uq_model_versions_name_source"),
    )
    op.create_table(
        "builds",
        sa.Column("sequence", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("numerics", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.JSON(), nullable=False),
        sa.Column("options", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("artifact", sa.Text(), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("invalidated", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", _TIME, nullable=True),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME, nullable=True),
        sa.Column("stage_started_at", _TIME, nullable=True),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="pk_builds"),
        sa.UniqueConstraint("id", name="uq_builds_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_builds_artifact", "builds", ["artifact"])
    op.create_index("ix_builds_state_sequence", "builds", ["state", "sequence"])
    op.create_index(
        "uq_builds_live_key",
        "builds",
        ["key"],
        unique=True,
        sqlite_where=sa.text(f"{_LIVE_STATES} AND invalidated = 0"),
        postgresql_where=sa.text(f"{_LIVE_STATES} AND NOT invalidated"),
    )
    op.create_table(
        "build_requests",
        sa.Column("sequence", _ROW_NUMBER, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("build", _ROW_NUMBER, nullable=False),
        sa.Column("asked_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_build_requests"),
        sa.ForeignKeyConstraint(["build"], ["builds.sequence"], name="fk_build_requests_build", ondelete="CASCADE"),
        sa.UniqueConstraint("model", "version", "build", name="uq_build_requests_model_version_build"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_build_requests_build", "build_requests", ["build"])
    op.create_table(
        "build_events",
        sa.Column("build", _ROW_NUMBER, nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("build", "sequence", name="pk_build_events"),
        sa.ForeignKeyConstraint(["build"], ["builds.sequence"], name="fk_build_events_build", ondelete="CASCADE"),
    )
    op.create_table(
        "build_stages",
        sa.Column("sequence", _ROW_NUMBER, nullable=False),
        sa.Column("build", _ROW_NUMBER, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("duration_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_build_stages"),
        sa.ForeignKeyConstraint(["build"], ["builds.sequence"], name="fk_build_stages_build", ondelete="CASCADE"),
    )
    op.create_index("ix_build_stages_build", "build_stages", ["build"])


def downgrade() -> None:
    for table in ("build_stages", "build_events", "build_requests", "builds", "model_versions"):
        op.drop_table(table)
