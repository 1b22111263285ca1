"""Adds verifications of artifacts by workers. On PostgreSQL, a verification that decides whether an artifact is served
sends a notification.

Migrations never change. This one contains its own copy of the parts of `tables.py` that it needs, as they were then.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_CHANNEL = "octet_models"


def upgrade() -> None:
    op.create_table(
        "verifications",
        sa.Column("artifact", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text()),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("artifact", "pool", name="pk_verifications"),
    )
    op.create_index("ix_verifications_state_created_at", "verifications", ["state", "created_at"])
    if not _is_postgresql():
        return
    op.execute(f"""
        CREATE FUNCTION octet_verification_changed() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            changed text;
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF OLD.state = NEW.state OR NEW.state = 'running' THEN
                    RETURN NULL;
                END IF;
            END IF;
            IF TG_OP = 'DELETE' THEN
                changed := OLD.artifact;
            ELSE
                changed := NEW.artifact;
            END IF;
            PERFORM pg_notify('{_CHANNEL}', asking.model)
            FROM (
                SELECT DISTINCT build_requests.model FROM build_requests
                JOIN builds ON builds.sequence = build_requests.build WHERE builds.artifact = changed
            ) AS asking;
            RETURN NULL;
        END $$""")
    op.execute(
        "CREATE TRIGGER octet_verification_changed AFTER INSERT OR UPDATE OR DELETE ON verifications"
        " FOR EACH ROW EXECUTE FUNCTION octet_verification_changed()"
    )


def downgrade() -> None:
    op.drop_table("verifications")
    if _is_postgresql():
        op.execute("DROP FUNCTION octet_verification_changed")


def _is_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"
