"""Adds the capabilities and addresses of a cluster's workers.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NUMBER_OF_NONE, _NOTHING, _READY = "0", "", "ready"


def upgrade() -> None:
    for column in (
        sa.Column("pool", sa.Text()),
        sa.Column("address", sa.Text()),
        sa.Column("features", sa.JSON()),
        sa.Column("capacity", sa.Integer(), nullable=False, server_default=_NUMBER_OF_NONE),
        sa.Column("loaded", sa.JSON()),
        sa.Column("loaded_version", sa.BigInteger(), nullable=False, server_default=_NUMBER_OF_NONE),
        sa.Column("release", sa.Text(), nullable=False, server_default=_NOTHING),
        sa.Column("state", sa.Text(), nullable=False, server_default=_READY),
    ):
        op.add_column("workers", column)


def downgrade() -> None:
    with op.batch_alter_table("workers") as table:
        for name in ("state", "release", "loaded_version", "loaded", "capacity", "features", "address", "pool"):
            table.drop_column(name)
