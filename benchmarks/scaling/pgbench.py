"""Runs PostgreSQL's own pgbench with the statements by which a worker claims and finishes a build."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from tests.support.postgres import binaries

# The statements of `service.db.builds.claims`, without the renewal of leases.
_SCRIPT = """
BEGIN;
SELECT clock_timestamp();
SELECT sequence AS build FROM builds WHERE builds.state IN ('queued', 'running')
  AND (state = 'queued' OR state = 'running' AND lease_until < now())
  ORDER BY background, sequence LIMIT 1 FOR UPDATE SKIP LOCKED \\gset
UPDATE builds SET last_event = last_event + 1, state = 'running', progress = 0, attempt = attempt + 1,
  owner = 'pgbench', token = token + 1, lease_until = now() + interval '600 s', started_at = now()
  WHERE sequence = :build RETURNING last_event \\gset
INSERT INTO build_events (build, sequence, at, kind, data)
  VALUES (:build, :last_event, now(), 'state', '{"state": "running", "attempt": 1, "owner": "pgbench"}');
COMMIT;
BEGIN;
SELECT token FROM builds WHERE sequence = :build AND state = 'running' FOR UPDATE;
SELECT clock_timestamp();
UPDATE builds SET last_event = last_event + 1, state = 'succeeded', progress = 1, lease_until = NULL,
  finished_at = now() WHERE sequence = :build RETURNING last_event \\gset
INSERT INTO build_events (build, sequence, at, kind, data)
  VALUES (:build, :last_event, now(), 'state', '{"state": "succeeded"}') RETURNING pg_notify('octet_builds', '');
COMMIT;
"""


def builds_per_s(url: str, count: int, clients: int) -> float | None:
    """Returns the rate at which `clients` claim and finish the `count` waiting builds; None if pgbench is not
    installed.
    """
    programs = binaries()
    if programs is None or not (programs / "pgbench").exists():
        return None
    with tempfile.TemporaryDirectory(prefix="octet-pgbench-") as folder:
        script = Path(folder) / "script.sql"
        script.write_text(_SCRIPT)
        shared = ["-c", str(clients), "-j", str(clients), "-t", str(count // clients)]
        command: list[str | Path] = [programs / "pgbench", "--no-vacuum", "-M", "prepared", *shared, "-f", script, url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or rate is None:
        raise RuntimeError(f"pgbench failed:\n{done.stderr}")
    return float(rate[1])
