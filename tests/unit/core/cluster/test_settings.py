"""Tests of the settings of a cluster: the key that its processes share, and the form of addresses and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from service.core.cluster.settings import ClusterSettings
from service.core.errors import InvalidInput

KEY = "0123456789abcdef"


def test_a_key_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert ClusterSettings(cluster_key_file=file).key_of_cluster == KEY


def test_a_key_may_be_set_directly_or_not_at_all() -> None:
    assert ClusterSettings.model_validate({"cluster_key": KEY}).key_of_cluster == KEY
    assert ClusterSettings().key_of_cluster == ""


@pytest.mark.parametrize("text", ["", "too short", "with a space inside", "ä" * 16, "a" * 513])
def test_a_file_without_a_valid_key_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=str(file)):
        _ = ClusterSettings(cluster_key_file=file).key_of_cluster


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot be read from .*missing"):
        _ = ClusterSettings(cluster_key_file=tmp_path / "missing").key_of_cluster


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cluster_key", "too short"),
        ("pool", "Capital"),
        ("advertise", "host:port"),
        ("cluster_tls_name", ".begins.with.a.dot"),
        ("worker_heartbeat_s", 0),
        ("pool_prices", {"vnni": -1.0}),
        ("pool_prices", {"vnni": float("inf")}),
        ("no_such_setting", 1),
    ],
)
def test_invalid_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        ClusterSettings.model_validate({name: value})


@pytest.mark.parametrize("address", ["10.0.0.7", "worker-1.example:8080", "[::1]:80"])
def test_addresses_with_and_without_a_port_are_accepted(address: str) -> None:
    assert ClusterSettings(advertise=address).advertise == address
