"""Clients whose requests are counted and timed while something happens to the cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.kubernetes import API, Cluster, Load, load

STEADY_S = 10.0
# between the requests of a client whose latencies are measured, so that they do not overload the machine
PAUSE_S = 0.05
AWAY_S = 45.0  # longer than requests to a store or a database are retried


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
