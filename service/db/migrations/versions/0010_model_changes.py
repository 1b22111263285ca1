"""Adds notifications of changed models on PostgreSQL, so that servers need not poll: see `db/engines/changes.py`."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_CHANNEL = "octet_models"
_NAMED = {"model_versions": "name", "model_aliases": "model", "build_requests": "model"}


def upgrade() -> None:
    if not _is_postgresql():
        return
    op.execute(f"""
        CREATE FUNCTION octet_model_changed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify(
                '{_CHANNEL}', CASE TG_OP WHEN 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END ->> TG_ARGV[0]);
            RETURN NULL;
        END $$""")
    for table, column in _NAMED.items():
        op.execute(
            f"CREATE TRIGGER octet_model_changed AFTER INSERT OR UPDATE OR DELETE ON {table}"
            f" FOR EACH ROW EXECUTE FUNCTION octet_model_changed('{column}')"
        )
    op.execute(f"""
        CREATE FUNCTION octet_build_changed() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('{_CHANNEL}', asking.model)
            FROM (SELECT DISTINCT model FROM build_requests WHERE build = NEW.sequence) AS asking;
            RETURN NULL;
        END $$""")
    op.execute("""
        CREATE TRIGGER octet_build_changed AFTER UPDATE ON builds FOR EACH ROW
        WHEN (OLD.invalidated <> NEW.invalidated OR (OLD.state <> NEW.state AND NEW.state = 'succeeded'))
        EXECUTE FUNCTION octet_build_changed()""")


def downgrade() -> None:
    if not _is_postgresql():
        return
    op.execute("DROP TRIGGER octet_build_changed ON builds")
    for table in _NAMED:
        op.execute(f"DROP TRIGGER octet_model_changed ON {table}")
    op.execute("DROP FUNCTION octet_build_changed")
    op.execute("DROP FUNCTION octet_model_changed")


def _is_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"
