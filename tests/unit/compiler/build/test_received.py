"""An artifact that was compiled elsewhere is verified and published, or rejected if its contents do not match its
manifest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from service import runtime
from service.cache import Manifest, OciLayout
from service.cache.export import export
from service.compiler.build.answers import SAMPLES
from service.compiler.build.artifact_archive import received
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.received import publish_received
from service.core.artifacts.artifact import OPTIONS_ANNOTATION, TARGET_ANNOTATION, TRAVELING, Report
from service.core.digest import Digest, digest_of_file
from service.core.errors import BuildCrashed, InvalidInput, OctetError, Unsupported, VerificationFailed
from service.core.settings import Settings
from service.core.target import TARGETS, detect_host
from tests.support.compiled import PICTURES, Unreported, compile_sample, expected
from tests.support.poison import poisoned_copy

MODEL = "digits_int8.tflite"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[OciLayout, Digest]:
    folder = tmp_path_factory.mktemp("elsewhere")
    layout = OciLayout(folder / "digits.octet")
    return layout, compile_sample(MODEL, layout, folder / "scratch")


class Arrival:
    """A store that receives artifact archives."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.layout = folder, OciLayout(folder / "store")

    def send(self, layout: OciLayout, digest: Digest, without: Report | None = None) -> Path:
        path = self.folder / "archive.tar"
        path.write_bytes(b"".join(export(layout, digest, [kind for kind in TRAVELING if kind is not without]).chunks()))
        return path

    def publish(self, archive: Path) -> Digest:
        found = received(archive)
        request = CompileRequest(archive, digest_of_file(archive), found.target, found.numerics, found.options)
        scratch = self.folder / "work"
        scratch.mkdir()
        return publish_received(request, self.layout, scratch, Unreported(), Settings(data_dir=self.folder))

    def digests_in_index(self) -> list[str]:
        return [entry.digest for entry in self.layout.index()]


@pytest.fixture
def arrival(tmp_path: Path) -> Arrival:
    return Arrival(tmp_path)


def test_an_unchanged_artifact_is_published_and_runs(elsewhere: tuple[OciLayout, Digest], arrival: Arrival) -> None:
    from service.runtime.image import decode

    layout, digest = elsewhere
    assert arrival.publish(arrival.send(layout, digest)) == digest
    model = runtime.load(arrival.layout, digest)
    for position in (3, 7):
        (scores,) = model.run([decode(PICTURES[position].read_bytes(), model.signature.inputs[0])])
        assert scores.ravel().tolist() == expected(MODEL)[position].tolist()


def test_local_reports_are_attached_and_received_claims_are_not(
    elsewhere: tuple[OciLayout, Digest], arrival: Arrival
) -> None:
    layout, digest = elsewhere
    arrival.publish(arrival.send(layout, digest))
    numerics = json.loads(arrival.layout.attached(digest, Report.NUMERICS) or b"")
    assert numerics["verified"] is True
    assert [witness["name"] for witness in numerics["witnesses"]] == ["the outputs that came with the artifact"]
    assert (numerics["outcome"], numerics["reference"]) == ("own_only", None)
    assert numerics["inputs"]["count"] > SAMPLES  # the inputs that the oracle chose were transferred, too
    for kind in (Report.COVERAGE, Report.VECTORS, Report.PROVENANCE, Report.FACTS):
        assert arrival.layout.attached(digest, kind) == layout.attached(digest, kind)
    assert arrival.layout.attached(digest, Report.PROFILE) is not None


def test_reports_of_an_earlier_local_build_stay(elsewhere: tuple[OciLayout, Digest], arrival: Arrival) -> None:
    layout, digest = elsewhere
    built = compile_sample(MODEL, arrival.layout, arrival.folder / "built")
    before = {kind: arrival.layout.attached(built, kind) for kind in Report}
    assert arrival.publish(arrival.send(layout, digest)) == built
    assert {kind: arrival.layout.attached(built, kind) for kind in Report} == before


def test_an_artifact_with_wrong_outputs_is_not_published(
    elsewhere: tuple[OciLayout, Digest], arrival: Arrival, tmp_path: Path
) -> None:
    layout, digest = elsewhere
    other = OciLayout(tmp_path / "other")
    answers = other.attached(compile_sample("digits_uint8.tflite", other, tmp_path / "scratch"), Report.VECTORS)
    assert answers is not None
    liar = copy(layout, digest, tmp_path / "liar", lambda manifest: manifest, {Report.VECTORS: answers})
    with pytest.raises(VerificationFailed):
        arrival.publish(arrival.send(*liar))
    assert arrival.digests_in_index() == []


def test_an_artifact_that_crashes_is_not_published(
    elsewhere: tuple[OciLayout, Digest], arrival: Arrival, tmp_path: Path
) -> None:
    layout, digest = elsewhere
    target, same = copy(layout, digest, tmp_path / "copy", lambda manifest: manifest)
    poisoned = poisoned_copy(target, same)
    vectors = target.attached(same, Report.VECTORS)
    assert vectors is not None
    target.attach(poisoned, Report.VECTORS, vectors)
    with pytest.raises(BuildCrashed):
        arrival.publish(arrival.send(target, poisoned))
    assert arrival.digests_in_index() == []


def test_a_damaged_library_is_rejected(elsewhere: tuple[OciLayout, Digest], arrival: Arrival) -> None:
    layout, digest = elsewhere
    archive = arrival.send(layout, digest)
    data = bytearray(archive.read_bytes())
    index = data.index(b"\x7fELF") + 0x800
    data[index] ^= 1
    archive.write_bytes(data)
    with pytest.raises(OctetError) as refused:
        arrival.publish(archive)
    assert refused.value.code == "digest_mismatch"
    assert arrival.digests_in_index() == []


def test_an_artifact_without_expected_outputs_is_rejected(
    elsewhere: tuple[OciLayout, Digest], arrival: Arrival
) -> None:
    with pytest.raises(InvalidInput, match="has no vectors"):
        arrival.publish(arrival.send(*elsewhere, without=Report.VECTORS))


def test_an_artifact_without_a_coverage_report_is_served(elsewhere: tuple[OciLayout, Digest], arrival: Arrival) -> None:
    digest = arrival.publish(arrival.send(*elsewhere, without=Report.COVERAGE))
    assert arrival.layout.attached(digest, Report.COVERAGE) is None
    assert arrival.layout.attached(digest, Report.NUMERICS) is not None


def test_an_artifact_for_another_target_than_in_its_config_is_rejected(
    elsewhere: tuple[OciLayout, Digest], arrival: Arrival, tmp_path: Path
) -> None:
    other = next(target.name for target in TARGETS if not target.runs_on(detect_host()))
    renamed = copy(*elsewhere, tmp_path / "copy", lambda manifest: annotated(manifest, TARGET_ANNOTATION, other))
    with pytest.raises(OctetError, match="another target than its manifest"):
        arrival.publish(arrival.send(*renamed))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        (TARGET_ANNOTATION, "z80", Unsupported),
        ("dev.octet.numerics", "guesswork", Unsupported),
        (OPTIONS_ANNOTATION, '{"batch": 8}', InvalidInput),
        (OPTIONS_ANNOTATION, "[[", InvalidInput),
    ],
)
def test_an_artifact_that_cannot_be_served_is_rejected_before_it_is_read(
    elsewhere: tuple[OciLayout, Digest],
    arrival: Arrival,
    tmp_path: Path,
    name: str,
    value: str,
    error: type[OctetError],
) -> None:
    changed = copy(*elsewhere, tmp_path / "copy", lambda manifest: annotated(manifest, name, value))
    with pytest.raises(error):
        received(arrival.send(*changed))


def annotated(manifest: Manifest, name: str, value: str) -> Manifest:
    return replace(manifest, annotations={**manifest.annotations, name: value})


def copy(
    layout: OciLayout,
    digest: Digest,
    folder: Path,
    change: Callable[[Manifest], Manifest],
    reports: dict[Report, bytes] | None = None,
) -> tuple[OciLayout, Digest]:
    """Copies the artifact to another layout after `change` has changed it. If `reports` are given, they replace the
    artifact's own reports.
    """
    other, manifest = OciLayout(folder), layout.manifest(digest)
    for part in (manifest.config, *manifest.layers):
        other.blobs.put_bytes(layout.blobs.read(part.digest))
    changed = other.put_manifest(change(manifest)).digest
    for kind in (*TRAVELING, Report.NUMERICS):
        data = (reports or {}).get(kind) or layout.attached(digest, kind)
        assert data is not None
        other.attach(changed, kind, data)
    return other, changed
