from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.core.cluster import roles
from service.core.cluster.settings import Role
from service.core.errors import InvalidInput, UnknownTarget, Unsupported
from service.core.settings import Settings
from service.core.target import Host, parse_target

KEY = "0123456789abcdef"
V3 = parse_target("x86-64-v3").features
HOST = Host("x86_64", parse_target("x86-64-v4+vnni").features | {"sm_80"})
OLD = Host("x86_64", V3)


def settings(role: Role = Role.WORKER, **others: Any) -> Settings:
    return Settings(**{"role": role, "cluster_key": KEY, **others})


@pytest.mark.parametrize("role", [Role.API, Role.WORKER])
def test_a_cluster_role_needs_the_cluster_key(role: Role) -> None:
    with pytest.raises(InvalidInput, match="by a shared key, and none is set"):
        roles.check(settings(role, cluster_key=None), HOST)
    roles.check(settings(role), HOST)


def test_a_single_server_needs_no_cluster_key() -> None:
    roles.check(settings(Role.EMBEDDED, cluster_key=None), Host("vax", frozenset()))


def test_the_key_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert settings(cluster_key=None, cluster_key_file=file).key_of_cluster == KEY
    with pytest.raises(ValidationError, match="set only one of them"):
        settings(cluster_key_file=file)


@pytest.mark.parametrize("content", [None, b"", b"short", b"two words of sixteen", "fünfzehn-und-mehr".encode()])
def test_a_file_without_a_key_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidInput, match=str(file)):
        roles.check(settings(cluster_key=None, cluster_key_file=file), HOST)


@pytest.mark.parametrize("key", ["short", "two words of sixteen", "fünfzehn-und-mehr"])
def test_a_key_must_fit_into_a_header(key: str) -> None:
    with pytest.raises(ValidationError, match="visible ASCII"):
        settings(cluster_key=key)


def test_a_worker_serves_the_best_target_of_its_cpu() -> None:
    assert roles.served_targets(settings(), HOST) == ("x86-64-v4+vnni",)
    assert roles.served_targets(settings(target="host"), OLD) == ("x86-64-v3",)


@pytest.mark.parametrize("target", ["x86-64-v3", "cuda-sm_80", "cuda-sm_80+sm_90"])
def test_a_worker_serves_the_configured_target_alone(target: str) -> None:
    assert roles.served_targets(settings(target=target), HOST) == (target,)
    assert roles.pool_of(settings(target=target), HOST) == target
    assert roles.pool_of(settings(target=target, pool="p"), HOST) == "p"


def test_the_error_lists_the_missing_features() -> None:
    with pytest.raises(Unsupported, match=r"cannot run x86-64-v4: it lacks avx512bw, .*avx512vl") as raised:
        roles.check(settings(target="x86-64-v4"), OLD)
    assert raised.value.hint == "it runs x86-64-v3"
    with pytest.raises(Unsupported, match=r"lacks sm_80"):
        roles.check(settings(target="cuda-sm_80"), OLD)
    with pytest.raises(Unsupported, match=r"lacks aarch64"):
        roles.check(settings(target="aarch64"), OLD)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(UnknownTarget):
        roles.check(settings(target="vax"), HOST)
    with pytest.raises(UnknownTarget, match="none of the targets"):
        roles.check(settings(), Host("x86_64", frozenset()))


def test_an_api_serves_no_target() -> None:
    assert roles.served_targets(settings(Role.API), HOST) == ()
    roles.check(settings(Role.API), Host("vax", frozenset()))


def test_the_address_of_a_worker_with_tls_begins_with_https(tmp_path: Path) -> None:
    encrypted = settings(tls_cert=tmp_path, tls_key=tmp_path, advertise="10.1.2.3", port=9000)
    roles.check(encrypted, HOST)
    assert roles.address_of(encrypted) == "https://10.1.2.3:9000"


@pytest.mark.parametrize("text", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_an_api_refuses_an_unusable_file_of_authorities(tmp_path: Path, text: str) -> None:
    (tmp_path / "ca.pem").write_text(text)
    with pytest.raises(InvalidInput, match=r"ca\.pem contains no certificates of authorities"):
        roles.check(settings(Role.API, cluster_ca=tmp_path / "ca.pem"), HOST)


def test_a_compile_worker_builds_for_the_configured_targets() -> None:
    assert roles.build_targets(settings()) == []
    assert roles.build_targets(settings(build_targets="x86-64-v3, aarch64")) == ["x86-64-v3", "aarch64"]
    with pytest.raises(UnknownTarget):
        roles.build_targets(settings(build_targets="x86-64-v3,vax"))


@pytest.mark.parametrize("address", ["10.0.0.1", "worker-1.pool.svc:8080", "[fd00::1]:80", "[::1]"])
def test_valid_values_of_advertise(address: str) -> None:
    assert settings(advertise=address).advertise == address


@pytest.mark.parametrize("address", ["", "http://a", "a:b", "::1", "a b", "-a", "a:1:2"])
def test_invalid_values_of_advertise(address: str) -> None:
    with pytest.raises(ValidationError):
        settings(advertise=address)


@pytest.mark.parametrize(
    ("others", "address"),
    [
        ({"advertise": "w1:80"}, "w1:80"),
        ({"advertise": "w1"}, "w1:9000"),
        ({"advertise": "[fd00::1]"}, "[fd00::1]:9000"),
        ({"advertise": "[fd00::1]:80"}, "[fd00::1]:80"),
        ({"host": "127.0.0.1"}, "127.0.0.1:9000"),
        ({"host": "fd00::1"}, "[fd00::1]:9000"),
    ],
)
def test_the_address_of_a_worker(others: dict[str, Any], address: str) -> None:
    assert roles.address_of(settings(port=9000, **others)) == address


def test_a_worker_that_listens_on_all_addresses_reports_that_of_its_host() -> None:
    host, _, port = roles.address_of(settings(port=9000, host="0.0.0.0")).rpartition(":")
    assert port == "9000"
    assert not ipaddress.ip_address(host).is_unspecified
