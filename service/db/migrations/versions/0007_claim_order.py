"""Adds an index of unfinished builds in the order of claims, and the oldest release that can work with the tables.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_UNFINISHED = sa.text("state IN ('queued', 'running')")


def upgrade() -> None:
    op.create_index(
        "ix_builds_claim_order",
        "builds",
        ["background", "sequence"],
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )
    floor = op.create_table("schema_floor", sa.Column("oldest", sa.Text(), nullable=False))
    op.bulk_insert(floor, [{"oldest": "0006"}])


def downgrade() -> None:
    op.drop_table("schema_floor")
    op.drop_index("ix_builds_claim_order", "builds")
