"""The number of random examples or cases that a test of compiled code or of an operator draws."""

from __future__ import annotations

import os

from hypothesis import settings

_LEAST, _ONE_IN = 3, 6


def examples(count: int) -> int:
    """Returns `count` in `make test-all`, which draws new examples, and in `make tables`. Returns a sixth of it in
    `make test`.

    `make test` draws the same examples every time, so that more of them would find nothing new. Each example compiles a
    kernel, runs one on an emulated CPU or GPU, or runs an operator in a reference runtime.
    """
    is_thorough = settings.get_current_profile_name() == "fresh" or "OCTET_TABLES" in os.environ
    return count if is_thorough else max(min(count, _LEAST), count // _ONE_IN)
