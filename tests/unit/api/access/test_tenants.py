"""The routes that are open to the keys of tenants."""

from __future__ import annotations

import pytest

from service.api.access.tenants import check_route
from service.core.errors import Forbidden


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/rerank"),
        ("GET", "/v1/models"),
        ("POST", "/api/v1/models/digits/predict"),
        ("POST", "/v2/models/digits/infer"),
        ("GET", "/api/v1/blobs/sha256:0"),
    ],
)
def test_a_tenant_may_use_its_models(method: str, path: str) -> None:
    check_route(method, path)


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/api/v1/blobs/sha256:0"), ("GET", "/api/v1/workers"), ("POST", "/v1/other")]
)
def test_other_routes_are_for_the_operator(method: str, path: str) -> None:
    with pytest.raises(Forbidden, match=f"has no access to {method} {path}"):
        check_route(method, path)
