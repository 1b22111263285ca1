from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import httpx
import pytest

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.digest import Digest, digest_of
from tests.support.blobs import damage_blob
from tests.support.control_plane import MODEL, ControlPlane, problem
from tests.support.scores import score_of


@pytest.fixture
def artifact(plane: ControlPlane) -> Digest:
    plane.push()
    return plane.succeed()


def test_an_artifact_is_its_manifest_byte_for_byte(plane: ControlPlane, artifact: Digest) -> None:
    response = plane.client.get(f"/api/v1/artifacts/{artifact}")
    assert digest_of(response.content) == artifact
    assert response.headers["content-type"] == "application/vnd.oci.image.manifest.v1+json"
    assert response.headers["etag"] == f'"{artifact}"'
    assert "immutable" in response.headers["cache-control"]


@pytest.mark.parametrize("report", [Report.NUMERICS, Report.COVERAGE, Report.PROVENANCE])
def test_the_reports_of_an_artifact(plane: ControlPlane, artifact: Digest, report: Report) -> None:
    plane.services.layout.attach(artifact, report, b'{"about": "it"}')
    response = plane.client.get(f"/api/v1/artifacts/{artifact}/{report.name.lower()}")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"about": "it"}


def test_a_missing_report(plane: ControlPlane, artifact: Digest) -> None:
    detach(plane, artifact)
    problem(plane.client.get(f"/api/v1/artifacts/{artifact}/numerics"), 404, "not_found")


def test_the_layers_with_the_time_of_each(plane: ControlPlane, artifact: Digest) -> None:
    layer = {"kernel": "conv", "layer": "stem", "operators": "conv2d", "symbol": "octet_conv", "macs": 1000}
    kernels = {"layers": [layer], "plain": [], "reorders": 0}
    coverage = {"integer_percent": 100.0, "macs": 1000, "kernels": kernels}
    profile = {"peak_macs_per_s": 4e9, "calls": [{"symbol": "octet_conv", "seconds": 1e-6}]}
    attach(plane, artifact, coverage=coverage, profile=profile)
    response = plane.client.get(f"/api/v1/artifacts/{artifact}/layers")
    (first_layer,) = response.json()["layers"]
    assert (first_layer["kernel"], first_layer["seconds"], first_layer["peak_percent"]) == ("conv", 1e-6, 25.0)


def test_the_layers_without_a_measurement(plane: ControlPlane, artifact: Digest) -> None:
    kernels = {"layers": [], "plain": [{"place": 0, "layer": "y", "operators": "softmax", "reason": "why", "macs": 7}]}
    detach(plane, artifact)
    attach(plane, artifact, coverage={"integer_percent": 0.0, "macs": 7, "kernels": kernels | {"reorders": 0}})
    document = plane.client.get(f"/api/v1/artifacts/{artifact}/layers").json()
    assert document["profile"] is None
    assert document["layers"][0]["reasons"] == {"y": "why"}
    assert document["layers"][0]["seconds"] is None


def test_layers_that_no_report_describes(plane: ControlPlane, artifact: Digest) -> None:
    path = f"/api/v1/artifacts/{artifact}/layers"
    problem(plane.client.get(path), 422, "unsupported")
    detach(plane, artifact)
    problem(plane.client.get(path), 404, "not_found")


def attach(plane: ControlPlane, artifact: Digest, **reports: object) -> None:
    for name, report in reports.items():
        plane.services.layout.attach(artifact, Report[name.upper()], json.dumps(report).encode())


def detach(plane: ControlPlane, artifact: Digest) -> None:
    """Removes all reports of an artifact."""
    for entry in plane.services.layout.referrers(artifact):
        plane.services.layout.remove(entry.digest)


def test_the_content_is_a_layout_that_can_be_opened(plane: ControlPlane, artifact: Digest, tmp_path: Path) -> None:
    plane.services.layout.attach(artifact, Report.SCORE, b"{}")
    response = plane.client.get(f"/api/v1/artifacts/{artifact}/content")
    assert response.headers["content-type"] == "application/x-tar"
    assert response.headers["content-length"] == str(len(response.content))
    with tarfile.open(fileobj=io.BytesIO(response.content)) as archive:
        archive.extractall(tmp_path / "copy", filter="data")
    copy = OciLayout.open(tmp_path / "copy")
    manifest = copy.manifest(artifact)
    assert manifest == plane.services.layout.manifest(artifact)
    assert [copy.blobs.read(layer.digest) for layer in manifest.layers] == [
        b"a library of " + digest_of(MODEL).encode(),
        b"constants",
    ]
    assert {report for report in Report if copy.attached(artifact, report)} == set(Report)


def test_the_content_of_an_artifact_is_always_the_same(plane: ControlPlane, artifact: Digest) -> None:
    url = f"/api/v1/artifacts/{artifact}/content"
    before = plane.client.get(url).content
    plane.push(name="another-name")
    assert plane.client.get(url).content == before
    assert b"another-name" not in before
    assert b"digits" not in before


@pytest.mark.parametrize("path", ["", "/content", "/numerics"])
def test_other_blobs_are_not_served(plane: ControlPlane, artifact: Digest, path: str) -> None:
    report = next(entry.digest for entry in plane.services.layout.referrers(artifact))
    for digest in (digest_of(MODEL), report, digest_of(b"nothing")):
        problem(plane.client.get(f"/api/v1/artifacts/{digest}{path}"), 404, "not_found")


def test_a_damaged_part_is_detected_before_the_content_is_sent(plane: ControlPlane, artifact: Digest) -> None:
    damage_blob(plane.services.layout.root, plane.services.layout.manifest(artifact).layers[0].digest)
    problem(plane.client.get(f"/api/v1/artifacts/{artifact}/content"), 500, "corrupt_blob")


def test_an_invalid_digest(plane: ControlPlane) -> None:
    problem(plane.client.get("/api/v1/artifacts/latest"), 400, "invalid_input")


def test_reports_are_json(plane: ControlPlane, artifact: Digest) -> None:
    assert json.loads(plane.client.get(f"/api/v1/artifacts/{artifact}/numerics").content) == {"verified": True}


class TestScore:
    def put(self, plane: ControlPlane, artifact: Digest, document: bytes) -> httpx.Response:
        return plane.client.put(f"/api/v1/artifacts/{artifact}/score", content=document)

    def test_a_score_is_returned_as_it_was_stored(self, plane: ControlPlane, artifact: Digest) -> None:
        url = f"/api/v1/artifacts/{artifact}/score"
        assert plane.client.get(url).status_code == 204
        for value in (0.5, 0.6):
            document = score_of(artifact, top1=value).to_bytes()
            assert self.put(plane, artifact, document).status_code == 204
            assert plane.client.get(url).content == document
        (entry, *_) = plane.client.get("/api/v1/audit").json()["entries"]
        assert (entry["action"], entry["artifact"], entry["key"]) == ("put_score", artifact, None)

    def test_other_documents_are_refused(self, plane: ControlPlane, artifact: Digest) -> None:
        other = score_of(digest_of(b"another"), top1=0.5).to_bytes()
        assert "about another artifact" in problem(self.put(plane, artifact, other), 400, "invalid_input")["detail"]
        problem(self.put(plane, artifact, b'{"top1": 0.9}'), 400, "invalid_input")
        problem(self.put(plane, artifact, b""), 400, "invalid_input")
        problem(self.put(plane, artifact, b" " * ((1 << 20) + 1)), 413, "too_large")
        problem(self.put(plane, digest_of(b"no artifact"), other), 404, "not_found")
