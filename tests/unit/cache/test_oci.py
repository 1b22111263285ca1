"""Tests of parsing descriptors and manifests that other tools, or attackers, may have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.cache import Descriptor, Manifest
from service.core.digest import digest_of
from service.core.errors import InvalidInput

CONFIG = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(b"{}"), "size": 2}
MANIFEST: dict[str, Any] = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "artifactType": "application/vnd.example",
    "config": CONFIG,
    "layers": [{**CONFIG, "annotations": {"a": "1"}}],
    "subject": CONFIG,
    "annotations": {"b": "2"},
}


def test_manifests_survive_json() -> None:
    manifest = Manifest.from_json(MANIFEST)
    assert manifest.to_json() == MANIFEST
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_the_config_type_is_the_default_artifact_type() -> None:
    document = {name: value for name, value in MANIFEST.items() if name not in ("artifactType", "mediaType")}
    assert Manifest.from_json(document).artifact_type == CONFIG["mediaType"]


@pytest.mark.parametrize(
    "change",
    [
        {"schemaVersion": 1},
        {"mediaType": "application/vnd.oci.image.index.v1+json"},
        {"artifactType": 7},
        {"config": None},
        {"config": {**CONFIG, "digest": "sha256:../../etc/passwd"}},
        {"config": {**CONFIG, "digest": None}},
        {"config": {**CONFIG, "size": -1}},
        {"config": {**CONFIG, "size": True}},
        {"config": {**CONFIG, "size": "2"}},
        {"config": {**CONFIG, "mediaType": None}},
        {"layers": None},
        {"layers": {}},
        {"layers": [[]]},
        {"subject": "sha256:00"},
        {"annotations": []},
        {"annotations": {"a": 1}},
    ],
)
def test_invalid_manifests_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Manifest.from_bytes(json.dumps({**MANIFEST, **change}).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"null", b"[" * 100_000])
def test_invalid_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        Manifest.from_bytes(data)


def test_a_descriptor_keeps_its_artifact_type() -> None:
    descriptor = Descriptor("application/x", digest_of(b""), 0, {"a": "1"}, "application/vnd.example")
    assert Descriptor.from_json(descriptor.to_json()) == descriptor
