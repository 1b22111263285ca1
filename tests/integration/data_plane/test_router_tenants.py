"""A router forwards a tenant's requests only to that tenant's models, whatever name the request contains."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from service.core.access.key import Key, Limits, Scope, new_key
from service.core.access.usage import KeyUsage
from service.workers.data_plane import orders
from tests.integration.data_plane.test_router_grpc import tensor
from tests.support import runners
from tests.support.routed import Cluster, cluster, request, vector
from tests.support.waiting import GIVE_UP_S

NOW = datetime.now(UTC)


def key_of(tenant: str) -> tuple[Key, str]:
    return new_key("a", [Scope.PREDICT, Scope.READ], Limits(), NOW, tenant)


KEYS = {tenant: key_of(tenant) for tenant in ("", "acme", "beta")}


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Cluster]:
    """Two models have the same name: the operator's has 16 elements, and a tenant's has 8."""
    with cluster(tmp_path) as made:
        sizes = {"echo": 16, "acme~echo": 8, "beta~private": 4}
        made.worker({name: runners.identity("UINT8", 1, size) for name, size in sizes.items()})
        made.say(orders.keys(True, [KeyUsage(key, NOW.date()) for key, _ in KEYS.values()]))
        made.tell()
        yield made


def ask(routed: Cluster, whose: str, path: str, size: int | None = None, **headers: str) -> httpx.Response:
    sent = {"authorization": f"Bearer {KEYS[whose][1]}", **headers}
    if size is None:
        return httpx.get(f"{routed.url}/v2/models/{path}", headers=sent, timeout=GIVE_UP_S)
    body = request(vector(1, size))
    return httpx.post(f"{routed.url}/v2/models/{path}/infer", content=body, headers=sent, timeout=GIVE_UP_S)


def test_a_name_refers_to_the_tenants_model_over_http(routed: Cluster) -> None:
    for whose, name, size in (("acme", "echo", 8), ("", "echo", 16), ("", "acme~echo", 8), ("beta", "private", 4)):
        answer = ask(routed, whose, name, size)
        assert (answer.status_code, answer.json()["model_name"]) == (200, name.rpartition("~")[2])
        about = ask(routed, whose, name).json()
        assert (about["name"], about["inputs"][0]["shape"]) == (name, [1, size])


@pytest.mark.parametrize("name", ["private", "beta~private", "acme~echo"])
def test_a_model_of_another_tenant_is_not_found(routed: Cluster, name: str) -> None:
    for headers in ({}, {"octet-tenant": "beta"}, {"octet-tenant": "beta", "octet-cluster-key": "wrong"}):
        assert ask(routed, "acme", name, 4, **headers).status_code == 404
        assert ask(routed, "acme", name, None, **headers).status_code == 404
    with triton.InferenceServerClient(routed.grpc) as client:
        shown = {"authorization": f"Bearer {KEYS['acme'][1]}", "octet-tenant": "beta"}
        with pytest.raises(InferenceServerException, match="NOT_FOUND"):
            client.infer(name, tensor(vector(1, 4)), headers=shown)
        with pytest.raises(InferenceServerException, match="NOT_FOUND"):
            client.get_model_metadata(name, headers=shown)


def test_a_name_refers_to_the_tenants_model_over_grpc(routed: Cluster) -> None:
    with triton.InferenceServerClient(routed.grpc) as client:
        for whose, name, size in (("acme", "echo", 8), ("", "echo", 16), ("", "acme~echo", 8)):
            shown = {"authorization": f"Bearer {KEYS[whose][1]}"}
            answer = client.infer(name, tensor(vector(2, size)), headers=shown)
            assert answer.as_numpy("y").tolist() == vector(2, size).tolist()
            about = client.get_model_metadata(name, headers=shown)
            assert (about.name, list(about.inputs[0].shape)) == (name, [1, size])
