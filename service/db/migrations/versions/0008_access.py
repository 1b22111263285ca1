"""Adds API keys, the use of their limits, the audit log, and crash records.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("requests_per_s", sa.Float()),
        sa.Column("requests_per_day", sa.BigInteger()),
        sa.Column("tenant", sa.Text(), nullable=False, server_default=""),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )
    op.create_table(
        "key_usage",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("day", "key", "replica", name="pk_key_usage"),
    )
    op.create_table(
        "audit_log",
        sa.Column("sequence", _ROW_NUMBER, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False, server_default=""),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_audit_log"),
        sa.UniqueConstraint("id", name="uq_audit_log_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_log_tenant_sequence", "audit_log", ["tenant", "sequence"])
    op.create_table(
        "crash_records",
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("artifact", name="pk_crash_records"),
    )


def downgrade() -> None:
    op.drop_table("crash_records")
    op.drop_index("ix_audit_log_tenant_sequence", "audit_log")
    op.drop_table("audit_log")
    op.drop_table("key_usage")
    op.drop_table("api_keys")
