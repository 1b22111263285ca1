"""Tests of the addresses of tenants' data planes, and of the settings that cannot be combined with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.core.cluster.settings import Role
from service.core.settings import Settings
from service.workers.tenant_planes import Addresses, folder_of, folder_of_front

_LONGEST_NAME = 107  # the maximum for a Unix socket, with the leading zero byte of an abstract one


def test_each_tenant_has_sockets_and_a_key_that_cannot_be_guessed() -> None:
    addresses, others = Addresses(), Addresses()
    found = [
        name
        for where in (addresses, others)
        for tenant in ("", "acme", "a" * 31)
        for name in (where.control(tenant), where.http(tenant), where.key(tenant).encode())
    ]
    assert len(set(found)) == len(found)
    assert all(len(name) <= _LONGEST_NAME for name in found)
    assert addresses.secret not in repr(addresses)
    assert Addresses(addresses.secret).control("acme") == addresses.control("acme")


def test_no_tenant_name_leads_to_another_folder(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    folders = {folder_of(settings, tenant) for tenant in ("", "acme", "front", "operator")} | {
        folder_of_front(settings)
    }
    assert len(folders) == 5
    assert {folder.parent for folder in folders} == {tmp_path / "planes"}


@pytest.mark.parametrize("also", [{"shared_memory": True}, {"role": Role.WORKER}, {"role": Role.API}])
def test_incompatible_settings_are_rejected(also: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="plane_per_tenant"):
        Settings.model_validate({"plane_per_tenant": True, **also})
