"""The number of random examples that a property test of compiled code draws."""

from __future__ import annotations

from hypothesis import settings

_LEAST, _ONE_IN = 3, 6


def examples(count: int) -> int:
    """Returns `count` in `make test-all`, which draws new examples, and a sixth of it in `make test`.

    `make test` draws the same examples every time, so that more of them would find nothing new. Each example compiles a
    kernel, or runs one on an emulated CPU or GPU.
    """
    return count if settings.get_current_profile_name() == "fresh" else max(min(count, _LEAST), count // _ONE_IN)
