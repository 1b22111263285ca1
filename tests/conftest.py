"""For every test."""

from __future__ import annotations

import os

# `service.runtime` chooses TVM's runtime-only library for a process that has not chosen. Here one process tests the
# compiler too, so it takes the whole library. A test that starts a server leaves this variable out of its environment.
os.environ.setdefault("TVM_USE_RUNTIME_LIB", "0")
