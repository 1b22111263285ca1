"""Adds labels and preprocessing of model versions.

Migrations never change. This one repeats what it needs of `tables.py`, as it was at the time.
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
