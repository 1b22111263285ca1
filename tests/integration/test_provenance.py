"""If trusted keys are configured, only artifacts that one of them signed are loaded. The signature identifies builder
and inputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service import runtime
from service.cache import OciLayout
from service.cache.export import export
from service.compiler.build.artifact_archive import received
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.compiler.build.received import publish_received
from service.compiler.children import locked
from service.compiler.lowering import toolchain
from service.core.artifacts.artifact import TRAVELING, Report
from service.core.digest import Digest, canonical_json, digest_of_file
from service.core.errors import InvalidInput, Untrusted
from service.core.provenance import Envelope, signer_of
from service.core.settings import Settings
from service.core.target import parse_target
from service.runtime.trust import Trust
from service.workers.inference.artifacts import StoredArtifacts
from service.workers.verifier import verify_artifact
from tests.support.build_caches import share_caches
from tests.support.compiled import EXAMPLES, Unreported
from tests.support.poison import poisoned_copy
from tests.support.signing import needs_signatures, write_pair
from tests.support.waiting import WORK_TIMEOUT_S

pytestmark = needs_signatures
MODEL = EXAMPLES / "digits_int8.tflite"
PICTURE = EXAMPLES / "digits" / "3.png"
BUILDER = "https://example.org/builders/7"


class Signed:
    """An artifact that was built with a key. Tests change its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "store"
        self.layout = OciLayout(self.root)
        self.key, self.public = write_pair(folder)
        self.stranger, self.strangers_public = write_pair(folder, "stranger", "ecdsa")
        scratch = folder / "scratch"
        scratch.mkdir()
        request = CompileRequest(MODEL, digest_of_file(MODEL), parse_target("host"), "litert-reference")
        share_caches(folder)
        settings = Settings(data_dir=folder, allow_unsandboxed=True, signing_key=self.key, builder_id=BUILDER)
        self.digest = compile_model(request, self.layout, scratch, Unreported(), settings)
        self.envelope = self.layout.attached(self.digest, Report.PROVENANCE) or b""

    @property
    def trust(self) -> Trust:
        return Trust.of(Settings(trusted_keys=str(self.public)))

    def put(self, document: bytes) -> None:
        self.layout.attach(self.digest, Report.PROVENANCE, document)

    def signed_by(self, key: Path, payload: bytes | None = None, kind: str = "application/vnd.in-toto+json") -> bytes:
        signer = signer_of(Settings(signing_key=key))
        assert signer is not None
        return signer.seal(kind, Envelope.from_bytes(self.envelope).payload if payload is None else payload).to_bytes()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return Signed(tmp_path_factory.mktemp("signed"))


@pytest.fixture
def signed(built: Signed) -> Signed:
    built.put(built.envelope)
    return built


def test_an_artifact_with_a_trusted_signature_is_loaded(signed: Signed) -> None:
    assert runtime.load(signed.layout, signed.digest, trust=signed.trust).digest == signed.digest


def test_the_statement_contains_the_builder_and_the_inputs(signed: Signed) -> None:
    evidence = signed.trust.evidence(signed.layout, signed.digest)
    found = evidence.provenance
    assert found is not None
    assert evidence.key is not None
    assert (evidence.key.name, found.builder) == ("octet.pub", BUILDER)
    expected = toolchain.build_inputs(digest_of_file(MODEL), parse_target("host"), "litert-reference")
    assert found.inputs == expected
    assert found.inputs.toolchain["passes"]
    assert found.tuning_log is None
    assert found.started_at <= found.finished_at


Change = Callable[[Signed], bytes]
_ENVELOPE: dict[str, Any] = {"payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": "AAAA"}]}
CHANGES: dict[str, Change] = {
    "nothing signed it": lambda signed: Envelope.from_bytes(signed.envelope).payload,
    "a stranger signed it": lambda signed: signed.signed_by(signed.stranger),
    "the builder was changed": lambda signed: changed(signed, BUILDER.encode(), b"https://example.org/builders/8"),
    "another artifact is meant": lambda signed: signed.signed_by(
        signed.key, Envelope.from_bytes(signed.envelope).payload.replace(signed.digest[7:].encode(), b"0" * 64)
    ),
    "another target is meant": lambda signed: signed.signed_by(
        signed.key,
        Envelope.from_bytes(signed.envelope).payload.replace(parse_target("host").name.encode(), b"aarch64"),
    ),
    "it was signed as something else": lambda signed: signed.signed_by(signed.key, kind="application/json"),
    "a signature of nothing": lambda signed: canonical_json({**_ENVELOPE, "payload": "e30="}),
    "no JSON": lambda signed: b"\xff\xfe",
    "too large": lambda signed: signed.envelope + b" " * (2 << 20),
    "empty": lambda signed: b"",
}


def changed(signed: Signed, old: bytes, new: bytes) -> bytes:
    envelope = Envelope.from_bytes(signed.envelope)
    payload = envelope.payload.replace(old, new)
    assert payload != envelope.payload
    return Envelope(envelope.payload_type, payload, envelope.signatures).to_bytes()


@pytest.mark.parametrize("change", CHANGES)
def test_an_artifact_without_a_trusted_signature_is_not_loaded(signed: Signed, change: str) -> None:
    signed.put(CHANGES[change](signed))
    with pytest.raises(Untrusted, match=signed.digest):
        runtime.load(signed.layout, signed.digest, trust=signed.trust)
    with pytest.raises(Untrusted):
        StoredArtifacts(signed.layout, trust=signed.trust).check(signed.digest)
    assert runtime.load(signed.layout, signed.digest).digest == signed.digest  # nothing else is wrong with it


def test_a_worker_verifies_an_artifact_with_a_trusted_signature(signed: Signed, tmp_path: Path) -> None:
    signed.put(signed.envelope)
    settings = Settings(data_dir=tmp_path, allow_unsandboxed=True, trusted_keys=str(signed.public))
    found = verify_artifact(signed.layout, signed.digest, settings, lambda: None)
    assert "are equal" in found["summary"]
    assert 0 < found["p50_s"] <= found["p99_s"]
    assert 0 < found["peak_percent"] < 100


def test_a_worker_does_not_run_other_artifacts(signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked, "run_child", lambda *_, **__: pytest.fail("it was run"))
    signed.put(CHANGES["nothing signed it"](signed))
    settings = Settings(data_dir=tmp_path, allow_unsandboxed=True, trusted_keys=str(signed.public))
    with pytest.raises(Untrusted):
        verify_artifact(signed.layout, signed.digest, settings, lambda: None)


def test_another_library_with_the_same_statement_is_not_loaded(signed: Signed) -> None:
    other = poisoned_copy(signed.layout, signed.digest)
    signed.layout.attach(other, Report.PROVENANCE, signed.envelope)
    with pytest.raises(Untrusted, match="about another artifact"):
        runtime.load(signed.layout, other, trust=signed.trust)
    signed.layout.remove(other)


def test_attestations_by_others_are_ignored(signed: Signed, tmp_path: Path) -> None:
    """A signature of the same type by another key is listed first. This can happen in a registry."""
    from service.cache import Descriptor, Manifest

    layout = OciLayout(tmp_path / "copy")
    archive = received_into(layout, signed)
    about = next(entry for entry in layout.index() if entry.digest == signed.digest)
    layout.remove(signed.digest)
    layout.put_manifest(layout.manifest(signed.digest))
    for document in (signed.signed_by(signed.stranger), b"{}", signed.envelope):
        config = layout.put_blob_descriptor("application/vnd.oci.empty.v1+json", b"{}")
        layer = layout.put_blob_descriptor("application/vnd.dsse.envelope.v1+json", document)
        subject = Descriptor(about.media_type, about.digest, about.size_bytes)
        layout.put_manifest(Manifest(Report.PROVENANCE, config, (layer,), {}, subject))
    layout.put_manifest(Manifest(Report.PROVENANCE, config, (), {}, subject))  # also a referrer without a statement
    assert archive == signed.digest
    signed.trust.check(layout, signed.digest)


def received_into(layout: OciLayout, signed: Signed) -> Digest:
    """Returns a copy of the artifact as it is transferred, which is not verified."""
    import io
    import tarfile

    archive = b"".join(export(signed.layout, signed.digest, TRAVELING).chunks())
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            if member.name.startswith("blobs/"):
                content = members.extractfile(member)
                assert content is not None
                layout.blobs.put_bytes(content.read())
    return layout.put_manifest(layout.manifest(signed.digest)).digest


@pytest.mark.parametrize("trusted", ["", "its key", "another key"])
def test_a_received_artifact_is_rejected_before_it_is_run(signed: Signed, tmp_path: Path, trusted: str) -> None:
    path = tmp_path / "archive.tar"
    path.write_bytes(b"".join(export(signed.layout, signed.digest, TRAVELING).chunks()))
    found = received(path)
    request = CompileRequest(path, digest_of_file(path), found.target, found.numerics, found.options)
    keys = {"": "", "its key": str(signed.public), "another key": str(signed.strangers_public)}[trusted]
    settings = Settings(data_dir=tmp_path, trusted_keys=keys, allow_unsandboxed=True)
    layout, scratch = OciLayout(tmp_path / "store"), tmp_path / "scratch"
    scratch.mkdir()
    if trusted == "another key":
        with pytest.raises(Untrusted):
            publish_received(request, layout, scratch, Unreported(), settings)
        assert layout.index() == []
        assert list(scratch.iterdir()) == []  # no child process was started
    else:
        assert publish_received(request, layout, scratch, Unreported(), settings) == signed.digest
        assert layout.attached(signed.digest, Report.PROVENANCE) == signed.envelope


def test_the_provenance_travels_with_its_artifact(signed: Signed, tmp_path: Path) -> None:
    layout = OciLayout(tmp_path / "copy")
    received_into(layout, signed)
    layout.attach(signed.digest, Report.PROVENANCE, signed.envelope)
    signed.trust.check(layout, signed.digest)
    layout.remove(signed.digest)
    layout.collect_garbage(min_age_s=0)
    assert list(layout.blobs.iterate()) == []


def test_nothing_is_built_with_an_invalid_key(tmp_path: Path) -> None:
    request = CompileRequest(MODEL, digest_of_file(MODEL), parse_target("host"), "litert-reference")
    settings = Settings(data_dir=tmp_path, signing_key=MODEL)
    with pytest.raises(InvalidInput, match=r"digits_int8\.tflite"):
        compile_model(request, OciLayout(tmp_path / "store"), tmp_path, Unreported(), settings)


@pytest.mark.parametrize("command", ["run", "verify", "bench", "explain", "serve"])
def test_commands_load_only_trusted_artifacts(signed: Signed, command: str) -> None:
    arguments = {
        "run": ["run", signed.root, PICTURE],
        "serve": ["worker", "serve", signed.root, "--port", "0", "--no-grpc"],
    }.get(command, [command, signed.root])
    refused = octet(*arguments, "--json", trusted=signed.strangers_public)
    assert refused.returncode == 1
    assert json.loads(refused.stdout)["error"]["code"] == "untrusted"


def test_verify_shows_who_built_it(signed: Signed) -> None:
    output = octet("verify", signed.root, trusted=signed.public).stdout
    assert BUILDER in output
    assert digest_of_file(MODEL) in output
    assert "by octet.pub, key " in output
    assert f"{signed.digest}: verified" in output
    document = json.loads(octet("verify", signed.root, "--no-run", "--json", trusted=signed.public).stdout)
    assert document["provenance"]["signed_by"]["name"] == "octet.pub"
    assert "not checked" in octet("verify", signed.root, "--no-run").stdout
    assert "not signed by a trusted key" in octet("verify", signed.root, trusted=signed.strangers_public).stdout


def octet(*arguments: object, trusted: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"OCTET_TRUSTED_KEYS": str(trusted)} if trusted else {})}
    command = [sys.executable, "-m", "service.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=WORK_TIMEOUT_S, env=environment, check=False)
