"""Artifacts are pushed to and pulled from a third-party registry, and other clients read them there."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import runtime
from service.cache import Manifest, OciLayout
from service.cli.commands.servers.pulled import served_folder
from service.cli.registry import pull_to, push_folder
from service.core.artifacts.artifact import PUBLISHED
from service.core.errors import Conflict, InvalidInput, NotFound, TooLarge, Unauthorized, Untrusted
from service.core.settings import Settings
from service.registry import Registry, parse_reference, push
from service.registry.cosign import tag_of
from service.runtime.trust import Trust
from tests.integration.registry.conftest import Model
from tests.support import oci_registry
from tests.support.signing import needs_signatures, write_pair

pytestmark = needs_signatures


@pytest.fixture
def pushed(model: Model, host: str) -> str:
    reference = f"oci://{host}/octet/digits:v1"
    assert push_folder(model.root, reference, model.settings) == model.digest
    return reference


def test_a_pushed_artifact_is_pulled_with_its_reports_and_runs(model: Model, pushed: str, tmp_path: Path) -> None:
    folder = tmp_path / "pulled"
    assert pull_to(parse_reference(pushed), folder, model.settings) == [model.digest]
    layout = OciLayout.open(folder)
    for kind in PUBLISHED:
        assert layout.attached(model.digest, kind) == model.layout.attached(model.digest, kind)
    assert runtime.load(layout, trust=Trust.of(model.settings)).digest == model.digest


def test_pushing_again_sends_no_blob(model: Model, pushed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    real = Registry._send

    def noted(self: Registry, method: str, url: str, *rest: Any) -> httpx.Response:
        sent.append(f"{method} {url}")
        return real(self, method, url, *rest)

    monkeypatch.setattr(Registry, "_send", noted)
    push_folder(model.root, pushed, Settings())
    assert sent
    assert [each for each in sent if "/uploads/" in each] == []


def test_pulling_again_fetches_only_missing_blobs(model: Model, pushed: str, tmp_path: Path) -> None:
    """An interrupted pull has left some blobs, and one of them was damaged later."""
    folder = tmp_path / "pulled"
    partial = OciLayout(tmp_path / "pulled.partial")
    library = model.layout.manifest(model.digest).layers[0]
    partial.blobs.put_bytes(model.layout.blobs.read(library.digest))
    partial.blobs.put_bytes(b"something else")
    pull_to(parse_reference(pushed), folder, Settings())
    assert runtime.load(folder).digest == model.digest
    assert len(list(OciLayout.open(folder).blobs.iterate())) == len(set(parts(model)))
    assert not (tmp_path / "pulled.partial").exists()


def parts(model: Model) -> Iterator[str]:
    for entry in model.layout.index():
        manifest = model.layout.manifest(entry.digest)
        if entry.digest == model.digest or entry.artifact_type in PUBLISHED:
            yield from (entry.digest, *(each.digest for each in (manifest.config, *manifest.layers)))


def test_an_existing_folder_is_not_overwritten(pushed: str, tmp_path: Path) -> None:
    with pytest.raises(Conflict):
        pull_to(parse_reference(pushed), tmp_path, Settings())


def test_an_artifact_without_a_trusted_signature_is_not_written(model: Model, pushed: str, tmp_path: Path) -> None:
    other = Settings(trusted_keys=str(write_pair(tmp_path, "other")[1]))
    with pytest.raises(Untrusted):
        pull_to(parse_reference(pushed), tmp_path / "pulled", other)
    assert not (tmp_path / "pulled").exists()


def test_a_digest_pins_the_content_of_a_tag(model: Model, pushed: str, tmp_path: Path) -> None:
    pull_to(parse_reference(f"{pushed}@{model.digest}"), tmp_path / "pulled", Settings())
    with pytest.raises(NotFound):
        pull_to(parse_reference(f"{pushed}@sha256:{'0' * 64}"), tmp_path / "other", Settings())


def test_the_size_limit_is_enforced(pushed: str, tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        pull_to(parse_reference(pushed), tmp_path / "pulled", Settings(max_upload_bytes=1000))


def test_an_unknown_tag_is_not_found(pushed: str, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        pull_to(parse_reference(pushed.replace(":v1", ":v2")), tmp_path / "pulled", Settings())


def test_an_image_of_other_software_is_rejected(host: str, tmp_path: Path) -> None:
    other = OciLayout(tmp_path / "other")
    config = other.put_blob_descriptor("application/vnd.oci.image.config.v1+json", b"{}")
    digest = other.put_manifest(Manifest("application/x-other", config, ())).digest
    reference = parse_reference(f"oci://{host}/other")
    with Registry(reference, Settings(), writes=True) as registry:
        push(registry, [(other, digest)])
    with pytest.raises(InvalidInput, match="not an artifact of Octet"):
        pull_to(reference, tmp_path / "pulled", Settings())


def test_several_targets_form_one_index(model: Model, host: str, tmp_path: Path) -> None:
    other = model.compile("aarch64+dotprod")
    reference = f"oci://{host}/octet/both:v1"
    try:
        push_folder(model.root, reference, model.settings)
    finally:
        model.layout.remove(other)
    assert set(pull_to(parse_reference(reference), tmp_path / "all", model.settings)) == {model.digest, other}
    arm = pull_to(parse_reference(reference), tmp_path / "arm", model.settings, lambda targets: "aarch64+dotprod")
    assert arm == [other]
    with pytest.raises(NotFound, match="has no artifact for riscv"):
        pull_to(parse_reference(reference), tmp_path / "none", model.settings, lambda targets: "riscv64+v")
    settings = model.settings.model_copy(update={"data_dir": tmp_path / "data"})
    # the variant that runs on this machine
    assert runtime.load(served_folder(reference, settings)).digest == model.digest


def test_a_pulled_model_is_served_during_an_outage_of_the_registry(model: Model, tmp_path: Path) -> None:
    if why := oci_registry.why_not():
        pytest.skip(why)
    settings = model.settings.model_copy(update={"data_dir": tmp_path / "data", "store_timeout_s": 1.0})
    with oci_registry.registry(tmp_path / "registry") as host:
        reference = f"oci://{host}/digits"
        push_folder(model.root, reference, model.settings)
        first = served_folder(reference, settings)
    again = served_folder(reference, settings)
    assert first == again
    assert again.name == "digits"
    assert runtime.load(again).digest == model.digest


@pytest.mark.parametrize("known", [True, False])
def test_a_registry_that_requires_a_password_gets_it(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    if why := oci_registry.why_not():
        pytest.skip(why)
    with oci_registry.registry(tmp_path, oci_registry.basic_auth(tmp_path)) as host:
        word = base64.b64encode(f"{oci_registry.USER}:{oci_registry.PASSWORD}".encode()).decode()
        config = {"auths": {host: {"auth": word}}} if known else {}
        (tmp_path / "config.json").write_text(json.dumps(config))
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        reference = f"oci://{host}/digits:v1"
        if not known:
            with pytest.raises(Unauthorized, match="requires a user and a password"):
                push_folder(model.root, reference, Settings())
            return
        push_folder(model.root, reference, Settings())
        assert pull_to(parse_reference(reference), tmp_path / "pulled", Settings()) == [model.digest]


def test_the_signature_is_valid_for_cosign(model: Model, pushed: str, host: str, tmp_path: Path) -> None:
    """Checks what `cosign verify --key` checks: the payload contains the digest, and OpenSSL verifies the signature."""
    with httpx.Client(base_url=f"http://{host}/v2/octet/digits") as client:
        accept = {"accept": "application/vnd.oci.image.manifest.v1+json"}
        manifest = client.get(f"/manifests/{tag_of(model.digest)}", headers=accept).json()
        (layer,) = manifest["layers"]
        payload = client.get(f"/blobs/{layer['digest']}").content
    assert layer["mediaType"] == "application/vnd.dev.cosign.simplesigning.v1+json"
    assert json.loads(payload)["critical"]["image"]["docker-manifest-digest"] == model.digest
    (tmp_path / "payload").write_bytes(payload)
    (tmp_path / "sig").write_bytes(base64.b64decode(layer["annotations"]["dev.cosignproject.cosign/signature"]))
    command: list[str | Path] = ["openssl", "dgst", "-sha256", "-verify", model.public, "-signature", tmp_path / "sig"]
    subprocess.run([*command, tmp_path / "payload"], check=True, capture_output=True)


def test_a_signature_by_another_key_is_kept(model: Model, pushed: str, host: str, tmp_path: Path) -> None:
    key, _ = write_pair(tmp_path, "other")
    push_folder(model.root, pushed, Settings(signing_key=key))
    push_folder(model.root, pushed, model.settings)
    with Registry(parse_reference(pushed), Settings()) as registry:
        layers = json.loads(registry.manifest(tag_of(model.digest))[1])["layers"]
    assert len({each["annotations"]["dev.cosignproject.cosign/signature"] for each in layers}) == len(layers) == 2


@pytest.mark.skipif(find_spec("oras") is None, reason="oras, the other client, is not installed (pip install oras)")
def test_oras_pulls_what_octet_pushed(model: Model, pushed: str, host: str, tmp_path: Path) -> None:
    import oras.client

    client = oras.client.OrasClient(hostname=host, insecure=True)
    manifest = client.get_manifest(f"{host}/octet/digits:v1")
    library, constants = manifest["layers"]
    for layer in (library, constants):
        path = tmp_path / layer["digest"][7:]
        client.download_blob(f"{host}/octet/digits", layer["digest"], str(path))
        assert path.read_bytes() == model.layout.blobs.read(layer["digest"])
