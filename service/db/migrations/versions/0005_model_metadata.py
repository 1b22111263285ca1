"""Labels and preprocessing of versions of models.

A migration is history: it repeats what it needs of `tables.py` as that was when it was written.
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
