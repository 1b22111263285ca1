"""Clients whose requests are counted and timed during a fault of the cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.kubernetes import API, Cluster, Load, load

STEADY_S = 10.0
# the pause between two requests of a client whose latencies are measured, so that the clients do not overload the
# machine
PAUSE_S = 0.05
AWAY_S = 45.0  # longer than the time for which failed requests to a store or a database are repeated


@contextmanager
def watched(cluster: Cluster, name: str, pause_s: float = PAUSE_S, model: str = "digits") -> Iterator[Load]:
    """Runs clients of the API's Service. Their requests are counted under `name`; the result is printed."""
    with load(cluster, API, model, pause_s) as seen:
        time.sleep(STEADY_S)
        seen.phase(name)
        yield seen
        seen.phase("afterwards")
        time.sleep(STEADY_S)
    average, *_ = os.getloadavg()
    print(f"{name} at a load of {average:.0f}: {json.dumps(seen.phases, indent=1)}")
