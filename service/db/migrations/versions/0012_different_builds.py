"""Extends the index of live builds to builds that differ from their reference runtime, so that they are reused too.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_INDEX = "uq_builds_live_key"


def upgrade() -> None:
    _replace("state IN ('queued', 'running', 'succeeded', 'different')")


def downgrade() -> None:
    op.execute("UPDATE builds SET state = 'failed' WHERE state = 'different'")
    _replace("state IN ('queued', 'running', 'succeeded')")


def _replace(live: str) -> None:
    op.drop_index(_INDEX, "builds")
    op.create_index(
        _INDEX,
        "builds",
        ["key"],
        unique=True,
        sqlite_where=sa.text(f"{live} AND invalidated = 0"),
        postgresql_where=sa.text(f"{live} AND NOT invalidated"),
    )
