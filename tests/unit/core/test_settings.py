"""Tests of the settings: the order of their sources, values that exclude each other, and derived values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.core.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTET_CONFIG", str(tmp_path / "octet.toml"))


def test_flags_override_the_environment_which_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octet.toml").write_text("port = 1001\ngrpc_port = 1002\nqueue_size = 3\n")
    monkeypatch.setenv("OCTET_PORT", "2001")
    monkeypatch.setenv("OCTET_GRPC_PORT", "2002")
    settings = load_settings({"port": 3001, "host": None})
    assert (settings.port, settings.grpc_port, settings.queue_size) == (3001, 2002, 3)
    assert settings.host == "127.0.0.1"


def test_a_model_has_the_common_values_except_those_set_for_it(tmp_path: Path) -> None:
    (tmp_path / "octet.toml").write_text("queue_size = 3\nthreads = 2\n[models.digits]\nqueue_size = 5\n")
    settings = load_settings()
    assert (settings.serving("digits").queue_size, settings.serving("digits").threads) == (5, 2)
    assert settings.serving("others").queue_size == 3


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "octet.toml").write_text("prot = 1\n")
    with pytest.raises(ValidationError, match="prot"):
        load_settings()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tls_cert": Path("cert.pem")}, "tls_cert and tls_key must be set together"),
        ({"cluster_key": "a" * 16, "cluster_key_file": Path("key")}, "set only one of them"),
        ({"plane_per_tenant": True, "role": "worker"}, "plane_per_tenant is a setting of octet serve"),
        ({"plane_per_tenant": True, "shared_memory": True}, "exclude each other"),
        ({"registry_username": "user"}, "must be set together"),
        ({"database_url": "mysql://host/data"}, "begins with postgresql://"),
        ({"admin_key": "no key"}, "admin_key"),
    ],
)
def test_contradictory_and_invalid_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        load_settings(values)


def test_secrets_are_not_shown() -> None:
    with pytest.raises(ValidationError) as raised:
        load_settings({"database_url": "mysql://user:secret@host/data"})
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(load_settings({"database_url": "postgresql://user:secret@host/data"}))


@pytest.mark.parametrize(
    ("values", "port"), [({"port": 9000}, 9001), ({"port": 0}, 0), ({"port": 9000, "grpc_port": 7000}, 7000)]
)
def test_the_port_for_grpc_follows_that_for_http(values: dict[str, Any], port: int) -> None:
    assert load_settings(values).port_of_grpc == port


def test_the_database_is_a_file_in_the_data_directory_by_default(tmp_path: Path) -> None:
    assert load_settings({"data_dir": tmp_path}).url_of_database.startswith(f"sqlite:///{tmp_path}/")
    url = "postgresql://host/data"
    assert load_settings({"database_url": url}).url_of_database == url


@pytest.mark.parametrize(("rate", "stall_s", "least"), [(1000, 60.0, 60_000), (0, 60.0, 1), (1000, 0.0004, 1)])
def test_a_body_has_to_bring_at_least_a_byte_in_time(rate: int, stall_s: float, least: int) -> None:
    settings = load_settings({"min_body_bytes_per_s": rate, "stall_timeout_s": stall_s})
    assert settings.min_body_bytes == least


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == ["data_dir"]
