"""Adds aliases of model versions, such as `stable`.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_aliases",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("canary", sa.Integer(), nullable=True),
        sa.Column("canary_percent", sa.Integer(), nullable=False),
        sa.Column("previous", sa.JSON(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("model", "name", name="pk_model_aliases"),
    )


def downgrade() -> None:
    op.drop_table("model_aliases")
