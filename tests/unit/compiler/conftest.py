"""Distributes the parameters of each test over the targets.

Each case of a test runs on one target, in rotation; on the other targets, it is marked `slow`. If a test has fewer
cases than there are targets, the first case also runs on the remaining targets. So each run covers every case and every
target, and `make test-all` covers every case on every target.
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
        if item.get_closest_marker("slow") is None:
            cases[others].append((item, target))
    turns = [
        # Each round begins with another target. Otherwise, if the number of a parameter's values is a multiple of the
        # number of targets, each value would always get the same target.
        (number + number // len(targets)) % len(targets)
        for number in range(len(cases))
    ]
    remaining = set(targets.values()) - set(turns)
    for number, case in enumerate(cases.values()):
        chosen = {turns[number], *(remaining if number == 0 else ())}
        for item, target in case:
            if len(case) == len(targets) and target not in chosen:
                item.add_marker(pytest.mark.slow)
