"""Tests of tenants: a key can neither read nor change anything of another tenant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api.access.access import Access
from service.api.control.room import files_of
from service.core.access.key import Limits, Scope
from service.core.access.tenant import owner_of
from service.core.builds.quantization import quantization_of
from service.core.digest import digest_of
from service.core.errors import QuotaExceeded
from service.quantize.stored import store
from service.workers.quantized import add_for_all
from tests.support.control_plane import HOST_TARGET, MODEL, ControlPlane, control_plane, problem
from tests.support.float_networks import residual_network

ALL = [Scope.PREDICT, Scope.READ, Scope.PUSH, Scope.METRICS, Scope.ADMIN]
QUOTAS = {"frugal": {"builds_per_day": 2, "stored_bytes": 250, "requests_per_day": 1000}}
FLOAT, QUANTIZED, SET = residual_network(), b"an ONNX file", b"PK: a calibration set"
SECRET = MODEL + b"the other's"  # a file that only beta has
NOBODY = "0123456789abcdef"


@dataclass
class Tenant:
    """A client with one key."""

    client: httpx.Client
    headers: dict[str, str]
    id: str

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, path, headers={**self.headers, **more.pop("headers", {})}, **more)

    def push(self, body: bytes = MODEL, name: str = "digits", **query: Any) -> httpx.Response:
        return self.ask("PUT", "/api/v1/models", params={"name": name, "target": HOST_TARGET, **query}, content=body)


@dataclass
class House:
    plane: ControlPlane
    operator: Tenant
    acme: Tenant
    beta: Tenant
    frugal: Tenant
    artifact: str  # the artifact of beta's model `private`
    build: str
    quantization: str  # beta's
    calibration: str


def tenant_of(plane: ControlPlane, tenant: str) -> Tenant:
    key, text = plane.services.access.create(tenant or "operator", ALL, Limits(), tenant)
    return Tenant(plane.client, {"authorization": f"Bearer {text}"}, key.id)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder: Path = tmp_path_factory.mktemp("house")
    with control_plane(folder, auth="on", tenants=QUOTAS) as plane:
        operator, acme, beta, frugal = (tenant_of(plane, name) for name in ("", "acme", "beta", "frugal"))
        beta.push()
        plane.succeed()
        secret = beta.push(SECRET, "private").json()
        artifact = plane.succeed()
        for _ in range(3):
            plane.services.crashes.note([artifact], "signal 11")
        assert acme.push().status_code == 202
        plane.succeed()
        for tenant in (acme, beta):
            cancel(tenant, tenant.push(FLOAT, "net"))
        quantization = beta.ask("POST", "/api/v1/models/net/quantizations", content=SET).json()["id"]
        cancel(beta, quantized(plane, beta, folder))
        yield House(plane, operator, acme, beta, frugal, str(artifact), secret["id"], quantization, str(digest_of(SET)))


def cancel(tenant: Tenant, answer: httpx.Response) -> None:
    assert tenant.ask("POST", f"/api/v1/builds/{answer.json()['id']}/cancel").status_code == 200


def quantized(plane: ControlPlane, tenant: Tenant, folder: Path) -> httpx.Response:
    """Completes the tenant's quantization as a worker would. Returns the response with the new version's build."""
    claim, services = plane.claim(), plane.services
    options = quantization_of(claim.inputs.options)
    assert options is not None
    (folder / "made").write_bytes(QUANTIZED)
    result = store(services.layout, claim.inputs.source, folder / "made", options.data, {})
    add_for_all(services.layout, services.builds, services.models, claim.build, result)
    services.builds.finish(claim, artifact=result)
    (build,) = [
        each
        for each in tenant.ask("GET", "/api/v1/builds?model=net&state=queued").json()["builds"]
        if each["version"] == 2
    ]
    return tenant.ask("GET", f"/api/v1/builds/{build['id']}")


def test_two_tenants_have_models_of_the_same_name(house: House) -> None:
    for tenant in (house.acme, house.beta):
        found = tenant.ask("GET", "/api/v1/models/digits").json()
        assert found["name"] == "digits"
        (version,) = found["versions"]
        assert (version["version"], version["url"]) == (1, "/api/v1/models/digits/versions/1")
    names = [[each["name"] for each in who.ask("GET", "/api/v1/models").json()["models"]] for who in everybody(house)]
    tenants = ["acme~digits", "acme~net", "beta~digits", "beta~net", "beta~private"]
    assert names == [tenants, ["digits", "net"], ["digits", "net", "private"]]


def everybody(house: House) -> list[Tenant]:
    return [house.operator, house.acme, house.beta]


def test_the_same_file_is_a_separate_build_for_each_tenant(house: House) -> None:
    builds = [tenant.ask("GET", "/api/v1/builds?model=digits").json()["builds"] for tenant in (house.acme, house.beta)]
    (one,), (other,) = builds
    assert one["id"] != other["id"]
    assert [each["models"] for each in (one, other)] == 2 * [[{"name": "digits", "version": 1}]]


def test_an_operator_sees_and_changes_everything_by_full_names(house: House) -> None:
    assert house.operator.ask("GET", "/api/v1/models/beta~private").json()["name"] == "beta~private"
    assert house.operator.ask("GET", f"/api/v1/builds/{house.build}").json()["model"] == "beta~private"
    assert house.operator.ask("GET", "/metrics").status_code == 200


SOURCE = str(digest_of(SECRET))
THEIRS = st.sampled_from(["private", "beta~private", "beta~digits", "acme~digits"])


def requests(
    build: str, artifact: str, name: str, source: str, quantization: str, calibration: str
) -> list[tuple[str, str, dict[str, Any]]]:
    """Returns requests of every type that refer to objects of another tenant, by their short or full names."""
    model, whole = f"/api/v1/models/{name}", {"force": "true"}
    return [
        ("GET", model, {}),
        ("GET", f"{model}/versions", {}),
        ("GET", f"{model}/versions/1", {}),
        ("PATCH", f"{model}/versions/1", {"json": {"labels": ["a"]}}),
        ("POST", f"{model}/builds", {"json": {"targets": [HOST_TARGET]}}),
        ("POST", f"{model}/promote", {"json": {"version": 1}}),
        ("POST", f"{model}/rollback", {}),
        ("GET", f"{model}/aliases", {}),
        ("DELETE", f"{model}/aliases/stable", {}),
        ("DELETE", f"{model}/versions/1", {"params": whole}),
        ("DELETE", model, {"params": whole}),
        ("POST", f"/v2/repository/models/{name}/load", {}),
        ("POST", f"/v2/repository/models/{name}/unload", {}),
        ("GET", f"/api/v1/builds/{build}", {}),
        ("GET", f"/api/v1/builds/{build[:10]}", {}),
        ("GET", f"/api/v1/builds/{build}/events", {}),
        ("GET", f"/api/v1/builds/{build}/log", {}),
        ("POST", f"/api/v1/builds/{build}/cancel", {}),
        *[
            ("GET", f"/api/v1/artifacts/{artifact}{what}", {})
            for what in ("", "/content", "/numerics", "/coverage", "/profile", "/facts", "/provenance", "/layers")
        ],
        ("POST", f"{model}/quantizations", {"content": SET}),
        ("POST", f"/api/v1/models/{name}/quantizations", {"params": {"dynamic": "true"}}),
        ("GET", f"{model}/quantizations", {}),
        ("GET", f"{model}/quantizations/{quantization}", {}),
        ("GET", f"{model}/quantizations/{quantization}/file", {}),
        ("GET", f"/api/v1/models/net/quantizations/{quantization}", {}),
        ("GET", f"/api/v1/models/net/quantizations/{quantization}/file", {}),
        ("POST", "/api/v1/models/net/quantizations", {"params": {"data": calibration}}),
        ("HEAD", f"/api/v1/blobs/{calibration}", {}),
        ("HEAD", f"/api/v1/blobs/{source}", {}),
        ("PUT", "/api/v1/models", {"params": {"name": "mine", "target": HOST_TARGET, "source": source}}),
    ]


@given(name=THEIRS, index=st.integers(0, 36))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_other_tenants_objects_look_like_missing_ones(house: House, name: str, index: int) -> None:
    nothing = str(digest_of(b"nothing"))
    method, path, more = requests(house.build, house.artifact, name, SOURCE, house.quantization, house.calibration)[
        index
    ]
    absent = requests(NOBODY, nothing, "nothing", nothing, NOBODY, nothing)[index]
    theirs, nothings = house.acme.ask(method, path, **more), house.acme.ask(absent[0], absent[1], **absent[2])
    assert theirs.status_code == nothings.status_code == 404
    if method != "HEAD":
        assert theirs.json()["code"] == nothings.json()["code"]
    still = house.beta.ask("GET", "/api/v1/models/private").json()
    assert [each["version"] for each in still["versions"]] == [1]
    assert (still["aliases"], still["versions"][0]["metadata"]) == ([], None)


def test_every_operation_is_forbidden_or_limited_to_the_tenant(house: House) -> None:
    """The test covers operations that are added later, too: a route that is not opened to tenants is refused."""
    operations = house.acme.ask("GET", "/api/v1/openapi.json").json()["paths"]
    values = {
        "name": "private",
        "version": "1",
        "alias": "stable",
        "label": "stable",
        "id": house.build,
        "digest": house.artifact,
    }
    for template, methods in operations.items():
        path = template.format_map({"model": "private", "region": "private", **values})
        for method in methods.keys() & {"get", "head"}:
            if path.startswith("/v2"):
                continue  # the data plane answers this path
            params = {"once": "true"} if path == "/api/v1/updates" else {}  # otherwise its response does not end
            answer = house.acme.ask(method.upper(), path, params=params)
            for marker in ("private", house.build, house.artifact, SOURCE, house.beta.id, "beta"):
                text = answer.text.replace(path, "")  # an error message repeats the path that was requested
                text = text.replace(values["id"], "") if answer.status_code == 404 else text
                text = text.replace(values["digest"], "") if answer.status_code == 404 else text
                text = text.replace(repr(values["name"]), "") if answer.status_code == 404 else text
                assert marker not in text, (method, path, answer.text)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/metrics"),
        ("GET", "/api/v1/workers"),
        ("PUT", "/api/v1/artifacts"),
        ("PUT", f"/api/v1/artifacts/sha256:{'0' * 64}/score"),
        ("PUT", f"/api/v1/blobs/{SOURCE}"),
        ("DELETE", f"/api/v1/quarantine/{SOURCE}"),
        ("GET", "/api/v1/something-new"),
        ("GET", "/api/v1/models/digits/something-new"),
        ("GET", "/api/v1/models/digits/matrix"),
        ("POST", "/api/v1/models/digits/matrix"),
        ("POST", "/api/v1/models/digits/compare"),
    ],
)
def test_operations_for_operators_are_forbidden_for_every_tenants_key(house: House, method: str, path: str) -> None:
    problem(house.acme.ask(method, path), 403, "forbidden")


def test_lists_show_only_the_tenants_own_objects(house: House) -> None:
    assert {each["model"] for each in house.acme.ask("GET", "/api/v1/builds").json()["builds"]} == {"digits", "net"}
    assert house.acme.ask("GET", "/api/v1/quarantine").json() == {"artifacts": []}
    (held,) = house.beta.ask("GET", "/api/v1/quarantine").json()["artifacts"]
    assert [each["name"] for each in held["models"]] == ["private"]
    indexed = [each["name"] for each in house.acme.ask("POST", "/v2/repository/index").json()]
    assert indexed == ["digits", "net"]


def test_a_tenant_sees_only_its_own_keys_and_audit_entries(house: House) -> None:
    assert [key["id"] for key in house.acme.ask("GET", "/api/v1/keys").json()["keys"]] == [house.acme.id]
    made = house.acme.ask("POST", "/api/v1/keys", json={"name": "x", "scopes": ["predict"]}).json()
    assert made["tenant"] == "acme"
    other = {"name": "x", "scopes": ["predict"], "tenant": "beta"}
    problem(house.acme.ask("POST", "/api/v1/keys", json=other), 403, "forbidden")
    problem(house.acme.ask("DELETE", f"/api/v1/keys/{house.beta.id}"), 404, "not_found")
    assert house.acme.ask("DELETE", f"/api/v1/keys/{made['id']}").status_code == 200
    entries = house.acme.ask("GET", "/api/v1/audit").json()["entries"]
    assert {entry["who"] for entry in entries} == {house.acme.id}
    assert {entry["model"] for entry in entries if entry["action"] == "push"} == {"digits", "net"}


def test_a_tenant_cannot_use_anothers_prefix(house: House) -> None:
    problem(house.acme.push(name="beta~digits"), 404, "not_found")
    assert house.acme.ask("GET", "/api/v1/builds?model=beta~digits").status_code == 404


def test_a_tenant_without_remaining_builds_gets_an_error(house: House) -> None:
    assert [house.frugal.push(name=name).status_code for name in "ab"] == [202, 202]
    house.frugal.ask("POST", "/api/v1/models/a/builds", json={"targets": ["x86-64-v4"]})
    refused = problem(house.frugal.push(name="a"), 429, "quota_exceeded")
    assert refused["detail"] == "the tenant frugal's 2 builds of this day are used up"
    assert house.acme.push(MODEL + b"2", "other").status_code == 202


def test_the_storage_of_a_tenant_is_limited(house: House) -> None:
    files = house.plane.services.models
    room = QUOTAS["frugal"]["stored_bytes"] - sum(files.file_sizes("frugal").values())
    refused = problem(house.frugal.push(MODEL + 200 * b"x", "large"), 507, "tenant_full")
    assert f"only {room} of the tenant frugal's 250 bytes are free" in refused["detail"]


def test_a_quantization_belongs_to_its_tenant_and_counts_as_two_builds(tmp_path: Path) -> None:
    with control_plane(tmp_path / "data", auth="on", tenants={"acme": {"builds_per_day": 6}}) as plane:
        acme = tenant_of(plane, "acme")
        cancel(acme, acme.push(FLOAT, "net"))
        build = acme.ask("POST", "/api/v1/models/net/quantizations", content=SET).json()
        again = acme.ask("POST", "/api/v1/models/net/quantizations", params={"data": digest_of(SET)})
        assert again.json()["id"] == build["id"], "a quantization in progress is not started again"
        made = quantized(plane, acme, tmp_path).json()
        assert (made["model"], made["version"]) == ("net", 2)
        quantization = acme.ask("GET", build["links"]["quantization"]).json()
        assert (quantization["version"], quantization["source"]) == (2, digest_of(QUANTIZED))
        assert acme.ask("GET", quantization["file"]).content == QUANTIZED
        assert [each["id"] for each in acme.ask("GET", "/api/v1/models/net/quantizations").json()["builds"]] == [
            build["id"]
        ]
        other = {"data": digest_of(SET), "version": 1}
        assert acme.ask("POST", "/api/v1/models/net/quantizations", params={**other, "method": "kl"}).is_success
        refused = acme.ask("POST", "/api/v1/models/net/quantizations", params={**other, "method": "mse"})
        said_so = problem(refused, 429, "quota_exceeded")["detail"]
        used_up = "the tenant acme's 6 builds of this day are used up"
        assert said_so == f"{used_up}: 2 more were requested, but only 1 are left"
        assert acme.push(MODEL, "other").status_code == 202


def test_calibration_sets_and_results_count_as_storage(tmp_path: Path) -> None:
    """Starting a quantization also reserves space for a result as large as the model."""
    needed = 2 * len(FLOAT) + len(SET)
    tenants = {"acme": {"stored_bytes": needed}, "beta": {"stored_bytes": needed - 1}}
    with control_plane(tmp_path / "data", auth="on", tenants=tenants) as plane:
        acme, beta = tenant_of(plane, "acme"), tenant_of(plane, "beta")
        for tenant in (acme, beta):
            cancel(tenant, tenant.push(FLOAT, "net"))
        refused = beta.ask("POST", "/api/v1/models/net/quantizations", content=SET)
        assert f"{len(FLOAT)} more bytes are reserved" in problem(refused, 507, "tenant_full")["detail"]
        assert acme.ask("POST", "/api/v1/models/net/quantizations", content=SET).status_code == 202
        assert sum(files_of(plane.services, "acme").values()) == len(FLOAT) + len(SET)
        cancel(acme, quantized(plane, acme, tmp_path))
        assert acme.ask("DELETE", "/api/v1/models/net/versions/2").is_success
        kept = files_of(plane.services, "acme")
        assert sum(kept.values()) == len(FLOAT) + len(SET) + len(QUANTIZED), (
            "the stored quantization still refers to its result"
        )
        assert acme.ask("DELETE", "/api/v1/models/net").is_success
        assert files_of(plane.services, "acme") == {}


def test_requests_of_all_keys_of_a_tenant_are_counted_together(tmp_path: Path) -> None:
    with control_plane(tmp_path, auth="on", tenants={"acme": {"requests_per_day": 3}}) as plane:
        access: Access = plane.services.access
        keys = [access.create(name, ALL, Limits(), "acme")[1] for name in "ab"]
        other = access.create("c", ALL, Limits(), "beta")[1]
        for text in (keys[0], keys[1], keys[0], *(5 * [other])):
            access.admit(f"Bearer {text}".encode(), Scope.READ)
        with pytest.raises(QuotaExceeded, match="the tenant acme's 3 requests of this day are used up") as caught:
            access.admit(f"Bearer {keys[1]}".encode(), Scope.READ)
        assert caught.value.retry_after_s is not None
        access.count_used({"beta~": 3, "acme~": 2})
        known = {each.key.id: each.used for each in access.keys_with_use()}
        assert known["acme~"] == 5


@given(st.text("ab~-", max_size=6), st.text("ab~-", max_size=6))
def test_names_of_owners_are_unique(tenant: str, model: str) -> None:
    if "~" not in tenant and tenant:
        assert owner_of(f"{tenant}~{model}") == tenant
