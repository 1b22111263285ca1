"""Tenants at the data plane. Each uses its own models under their short names, and cannot see those of other
tenants.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.access import stores_of
from service.api.grpc import inference_pb2 as pb
from service.core.access.key import Limits, Scope
from service.core.settings import Settings
from tests.support.plane_process import PlaneProcess, plane
from tests.support.waiting import GIVE_UP_S

_SERVICE = "/inference.GRPCInferenceService/"
_QUOTAS = {"frugal": {"requests_per_day": 3}}


@dataclass
class House:
    served: PlaneProcess
    keys: dict[str, str]  # by tenant; `frugal` has two

    def ask(self, whose: str, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[whose]}"}
        return httpx.request(method, f"{self.served.url}{path}", headers=headers, timeout=GIVE_UP_S, **more)

    def predict(self, whose: str, model: str, **parameters: Any) -> httpx.Response:
        image: dict[str, Any] = {"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8"}
        shape = self.ask("acme", "GET", "/v2/models/digits").json()["inputs"][0]
        size = 1
        for extent in shape["shape"]:
            size *= abs(extent)
        image = {"name": shape["name"], "shape": [abs(each) for each in shape["shape"]], "datatype": shape["datatype"]}
        image |= {"parameters": parameters} if parameters else {"data": [0] * size}
        return self.ask(whose, "POST", f"/v2/models/{model}/infer", json={"inputs": [image]})

    def call(self, whose: str, rpc: str, message: Any, answer: Any) -> Any:
        with grpc.insecure_channel(self.served.grpc) as channel:
            metadata = [("authorization", f"Bearer {self.keys[whose]}")]
            sent = message.SerializeToString()
            return answer.FromString(channel.unary_unary(_SERVICE + rpc)(sent, timeout=GIVE_UP_S, metadata=metadata))


@pytest.fixture(scope="module")
def house(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("tenants")
    ring = stores_of(Settings(data_dir=folder)).ring()
    scopes = [Scope.PREDICT, Scope.READ]
    keys = {name: ring.create("a", scopes, Limits(), name)[1] for name in ("", "acme", "beta", "frugal")}
    keys["another of frugal"] = ring.create("b", scopes, Limits(), "frugal")[1]
    models = [f"{name}={digits}" for name in ("digits", "acme~digits", "beta~digits", "beta~private", "frugal~digits")]
    chosen = {"OCTET_KEYS_FILE": str(folder / "keys.json"), "OCTET_DATA_DIR": str(folder)}
    with plane(models, OCTET_TENANTS=json.dumps(_QUOTAS), OCTET_SHARED_MEMORY="true", **chosen) as served:
        yield House(served, keys)


def test_a_tenants_model_has_its_short_name(house: House) -> None:
    answer = house.predict("acme", "digits")
    assert (answer.status_code, answer.json()["model_name"]) == (200, "digits")
    for path in ("/v2/models/digits", "/v2/models/digits/config", "/v2/models/digits/ready"):
        assert house.ask("acme", "GET", path).json()["name"] == "digits"
    request = pb.ModelMetadataRequest(name="digits")
    assert house.call("acme", "ModelMetadata", request, pb.ModelMetadataResponse).name == "digits"


def test_the_operator_uses_full_names(house: House) -> None:
    for name in ("digits", "acme~digits", "beta~private"):
        assert house.ask("", "GET", f"/v2/models/{name}").json()["name"] == name
        assert house.predict("", name).status_code == 200


THEIRS = st.sampled_from(["private", "beta~private", "beta~digits", "acme~digits", "~digits", "beta%7Eprivate"])
WAYS = ["", "/ready", "/config", "/stats", "/versions/1", "/versions/1/stats", "@1", "@stable"]


@given(name=THEIRS, way=st.sampled_from(WAYS))
@settings(max_examples=60)
def test_a_model_of_another_tenant_is_not_found_over_http(house: House, name: str, way: str) -> None:
    answer = house.ask("acme", "GET", f"/v2/models/{name}{way}")
    assert answer.status_code == 404
    assert house.predict("acme", name).status_code == 404


@given(name=THEIRS, rpc=st.sampled_from(["ModelMetadata", "ModelConfig", "ModelStatistics", "ModelInfer"]))
@settings(max_examples=30)
def test_a_model_of_another_tenant_is_not_found_over_grpc(house: House, name: str, rpc: str) -> None:
    field = "model_name" if rpc == "ModelInfer" else "name"
    with pytest.raises(grpc.RpcError) as refused:
        house.call("acme", rpc, getattr(pb, f"{rpc}Request")(**{field: name}), getattr(pb, f"{rpc}Response"))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_statistics_contain_only_the_tenants_own_models(house: House) -> None:
    house.predict("beta", "private")
    found = {whose: house.ask(whose, "GET", "/v2/models/stats").json()["model_stats"] for whose in ("acme", "beta", "")}
    assert [each["name"] for each in found["acme"]] == ["digits"]
    assert [each["name"] for each in found["beta"]] == ["digits", "private"]
    assert {each["name"] for each in found[""]} > {"acme~digits", "beta~private"}
    answer = house.call("acme", "ModelStatistics", pb.ModelStatisticsRequest(), pb.ModelStatisticsResponse)
    assert [each.name for each in answer.model_stats] == ["digits"]


def test_tenants_cannot_use_shared_memory(house: House) -> None:
    region = {"key": "/octet-test", "byte_size": 64}
    register = house.ask("acme", "POST", "/v2/systemsharedmemory/region/r/register", json=region)
    status = house.ask("acme", "GET", "/v2/systemsharedmemory/status")
    predicted = house.predict("acme", "digits", shared_memory_region="r", shared_memory_byte_size=256)
    for answer in (register, status, predicted):
        assert answer.status_code == 422, answer.text
        assert "tenants cannot use shared memory" in answer.json()["detail"]


def test_the_keys_of_a_tenant_share_one_quota(house: House) -> None:
    order = ["frugal", "another of frugal", "frugal", "another of frugal"]
    answers = [house.ask(whose, "GET", "/v2/models/digits") for whose in order]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["detail"] == "the tenant frugal's 3 requests of this day are used up"
    assert int(answers[-1].headers["retry-after"]) > 0
    assert house.ask("acme", "GET", "/v2/models/digits").status_code == 200
