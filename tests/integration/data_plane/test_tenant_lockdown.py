"""In the data plane of one tenant, the code of an artifact cannot read files of another tenant."""

from __future__ import annotations

import errno
from pathlib import Path

import httpx
import pytest

from service.cache import OciLayout
from service.core.cluster.queueing import Scheduling
from service.core.settings import Settings
from service.runtime.stored import StoredArtifact
from service.runtime.trust import ANYBODY
from service.workers.data_plane import loads, orders
from service.workers.data_plane.frames import frame
from service.workers.tenant_planes import TenantFiles
from tests.support.hostile import ATTEMPTS, trap
from tests.support.plane_process import ControlledPlane
from tests.support.small_artifact import LENGTH
from tests.support.waiting import GIVE_UP_S

FIRST = frame(orders.configure(Settings())) + frame(orders.keys(is_required=False))


@pytest.mark.parametrize(("readable", "is_kept_out"), [("planes/acme", True), (".", False)])
def test_code_of_one_tenant_reads_no_files_of_another(tmp_path: Path, readable: str, is_kept_out: bool) -> None:
    """The code tries to read a secret next to the store, which represents another tenant's artifact in it."""
    files = TenantFiles(lambda tenant: tmp_path / "planes" / tenant)
    with trap(tmp_path) as trapped:
        artifact = StoredArtifact.read(OciLayout.open(trapped.folder), trapped.digest, ANYBODY)
        order, _ = loads.load("acme~trap", "1", [(1, artifact)], Scheduling(instances=1, threads=1))
        (tmp_path / "planes/acme").mkdir(parents=True)
        with ControlledPlane(tmp_path / readable, FIRST) as plane:
            with files.link_files("acme", order) as lent:
                plane.say({**lent, "key": 1})
                assert plane.hear("loaded")["key"] == 1
            plane.say(orders.routes([orders.Named("acme~trap", "", 1, ["1"])]))
            url = f"http://{plane.http[0]}:{plane.http[1]}/v2/models/acme~trap/infer"
            request = {"inputs": [{"name": "in0", "shape": [1, LENGTH], "datatype": "INT32", "data": [0] * LENGTH}]}
            answer = httpx.post(url, json=request, timeout=GIVE_UP_S, trust_env=False)
            assert answer.status_code == 200, answer.text
        results = dict(zip(ATTEMPTS, answer.json()["outputs"][0]["data"], strict=False))
    assert (results["read a secret"] == -errno.EACCES) == is_kept_out
    assert is_kept_out or results["read a secret"] >= 0
