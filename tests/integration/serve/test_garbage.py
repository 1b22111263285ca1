"""`octet gc` runs while a server receives files, builds and predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from service.cache import MIN_AGE_S, OciLayout
from service.core.builds.build import BuildState
from service.core.digest import Digest, digest_of
from tests.support.blobs import age_blob
from tests.support.serving import INT8, OTHERS, RUNS_HERE, UINT8, Served, environment, model
from tests.support.waiting import WORK_TIMEOUT_S


def collected(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "service.cli", "gc", "--json", "--data-dir", str(folder / "data")]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True, timeout=WORK_TIMEOUT_S
    )
    deleted: list[str] = json.loads(done.stdout)["deleted"]
    return deleted


def make_all_older(layout: OciLayout) -> None:
    for digest in layout.blobs.iterate():
        age_blob(layout.root, digest, 2 * MIN_AGE_S)


@pytest.mark.slow
def test_served_built_and_uploaded_blobs_are_kept(served: Served, folder: Path) -> None:
    layout = OciLayout(folder / "data" / "store")
    orphan, named = (layout.blobs.put_bytes(data) for data in (b"orphan", model(UINT8)))
    make_all_older(layout)
    assert served.client.head(f"/api/v1/blobs/{named}").status_code == 200  # This file need not be sent again.
    build = served.push(target=OTHERS[2])  # The same model as the served one, so that it shares layers.
    with layout.blobs.writer() as writer:
        writer.write(model(INT8)[:1000])
        assert collected(folder) == [orphan]
        writer.write(model(INT8)[1000:])
        assert writer.commit() == digest_of(model(INT8))
    while not BuildState(served.build(build["id"])["state"]).is_final:
        assert collected(folder) == []
    assert served.ended(build["id"])["state"] == "succeeded"
    response = served.client.put("/api/v1/models", params={"name": "late", "target": RUNS_HERE, "source": named})
    assert served.ended(response.json()["id"])["state"] == "succeeded"
    make_all_older(layout)
    assert collected(folder) == []
    assert served.label(5) == 5
    assert served.label(6, "late") == 6
    for entry in layout.index():
        manifest = layout.manifest(Digest(entry.digest))
        for part in (manifest.config, *manifest.layers):
            layout.blobs.read(part.digest)
