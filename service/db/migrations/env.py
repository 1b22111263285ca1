"""The script that Alembic runs. The script must not end the transaction of the connection that `Database.migrate`
passes.
"""

from __future__ import annotations

from alembic import context

from service.db.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
