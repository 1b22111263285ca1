"""Adds labels and preprocessing of model versions.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model_versions", sa.Column("metadata", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("model_versions", "metadata")
