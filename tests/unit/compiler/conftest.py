"""What the targets of this machine share: the cases of a test.

A case is tried for one target, in turn, and the first case of each test for all of them; the others are marked `slow`.
So every size and every target is met on each run, and each size with each target by `make test-all`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

_TARGETS = ("target", "isa")  # parameters whose values are targets, or the instruction sets of some
_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before the items are chosen by their marks
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
        # In each round of cases with another one: what else varies as often as targets do meets all of them.
        turn = (number + number // len(targets)) % len(targets)
        for item, target in (first, *more):
            if number > 0 and len(more) + 1 == len(targets) and target != turn:
                item.add_marker(pytest.mark.slow)
