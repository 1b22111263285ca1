"""Adds the highest number of a model's deleted versions.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "deleted_versions",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("highest", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model", name="pk_deleted_versions"),
    )


def downgrade() -> None:
    op.drop_table("deleted_versions")
