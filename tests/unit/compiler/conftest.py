"""Distributes the parameters of each test over the targets.

The first case of a test runs on all targets. Every other case runs on one target, in rotation; on the other targets, it
is marked `slow`. So each run covers every case and every target, and `make test-all` covers every case on every target.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

_TARGETS = ("target", "isa")  # parameters whose values are targets or instruction sets
_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest selects items by their marks
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    tests = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item.path.is_relative_to(_HERE):
            tests[item.parent, item.originalname].append(item)
    for test in tests.values():
        _share(test)


def _share(test: Sequence[pytest.Function]) -> None:
    targets: dict[str, int] = {}
    cases: dict[tuple[tuple[str, int], ...], list[tuple[pytest.Function, int]]] = defaultdict(list)
    for item in test:
        own = next((name for name in _TARGETS if name in item.callspec.params), None)
        if own is None:
            return
        others = tuple((name, id(value)) for name, value in item.callspec.params.items() if name != own)
        target = targets.setdefault(str(item.callspec.params[own]), len(targets))
        cases[others].append((item, target))
    for number, (first, *more) in enumerate(cases.values()):
        # Each round begins with another target. Otherwise, if the number of a parameter's values is a multiple of the
        # number of targets, each value would always get the same target.
        turn = (number + number // len(targets)) % len(targets)
        for item, target in (first, *more):
            if number > 0 and len(more) + 1 == len(targets) and target != turn:
                item.add_marker(pytest.mark.slow)
