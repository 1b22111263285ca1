"""Alembic runs this; `Database.migrate` gave it a connection whose transaction it must not end."""

from __future__ import annotations

from alembic import context

from service.db.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
