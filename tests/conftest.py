"""Fixtures and settings for all tests."""

import os

import pytest
from hypothesis import settings

from tests.support import kernel_cache

# All runs use the same examples, so that a new failure is caused by a change of the code. `make test-all` draws new
# examples. Examples have no deadline, because they take longer on a busy machine.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ.setdefault("OCTET_BUILD_NICE", "0")  # other tests run at the same time, and tests wait for their builds


def pytest_configure(config: pytest.Config) -> None:
    if kernel_cache.start():
        config.add_cleanup(kernel_cache.end)
