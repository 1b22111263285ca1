"""Creates a cluster of processes on this machine, with its own PostgreSQL and bucket."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import postgres
from tests.support import s3_server as s3
from tests.support.cluster import Cluster, cluster


@contextmanager
def own_cluster(heartbeat_s: float) -> Iterator[Cluster]:
    """Yields a cluster without running processes."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres.server())
        stack.callback(os.environ.update, dict(os.environ))
        os.environ.update(s3.environment(stack.enter_context(s3.server())))
        stores = {"database_url": postgres.database_url(server), "store_url": f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"}
        folder = Path(stack.enter_context(TemporaryDirectory()))
        yield stack.enter_context(cluster(folder, **stores, worker_heartbeat_s=heartbeat_s))
