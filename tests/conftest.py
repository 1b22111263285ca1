"""Fixtures and settings for all tests."""

import gc
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import settings

from tests.support import build_caches
from tests.support.waiting import GIVE_UP_S

# All runs use the same examples, so that a new failure is caused by a change of the code. `make test-all` draws new
# examples. Examples have no deadline, because they take longer on a busy machine.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ.setdefault("OCTET_BUILD_NICE", "0")  # other tests run at the same time, and tests wait for their builds


# Unless a test sets a timeout, httpx gives up after five seconds, which a request may take on a busy machine.
for phase in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, phase, GIVE_UP_S)

_SLOW_TIMEOUT_S = 900
_CLUSTER = Path(__file__).parent / "cluster"


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Gives more time to tests that take minutes."""
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None or item.path.is_relative_to(_CLUSTER)
        if is_slow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))


def pytest_configure(config: pytest.Config) -> None:
    # Collection creates millions of objects that live until the end of the run. The garbage collector would scan all of
    # them again and again, which takes a third of the time of the collection.
    gc.disable()
    if build_caches.start():
        config.add_cleanup(build_caches.end)
    os.environ.setdefault("SSL_CERT_FILE", str(build_caches.one_authority()))


def pytest_collection_finish() -> None:
    """Excludes what exists now from garbage collection, which the tests then use as usual."""
    gc.collect()
    gc.freeze()
    gc.enable()
