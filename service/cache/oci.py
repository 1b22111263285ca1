"""Descriptors and manifests of the OCI image specification 1.1, as immutable values.

https://github.com/opencontainers/image-spec/blob/v1.1.1/{descriptor,manifest}.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from service.core.digest import Digest, canonical_json, parse_digest
from service.core.errors import InvalidInput

LAYOUT_VERSION = "1.0.0"  # the version of the OCI image layout

MANIFEST_MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_MEDIA_TYPE = "application/vnd.oci.image.index.v1+json"
EMPTY_MEDIA_TYPE = "application/vnd.oci.empty.v1+json"
# "A registry SHOULD … support manifests of at least 4 megabytes": distribution specification 1.1, Pushing Manifests.
LARGEST_MANIFEST_BYTES = 4 << 20
EMPTY_BYTES = b"{}"  # the specification's empty config, for manifests that need none


@dataclass(frozen=True)
class Descriptor:
    """A reference to a blob.

    Attributes:
        artifact_type: the artifact type, if the blob is a manifest.
    """

    media_type: str
    digest: Digest
    size_bytes: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        descriptor: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes}
        if self.artifact_type is not None:
            descriptor["artifactType"] = self.artifact_type
        if self.annotations:
            descriptor["annotations"] = dict(self.annotations)
        return descriptor

    @staticmethod
    def from_json(descriptor: Any) -> Descriptor:
        """Parses a descriptor. Raises `InvalidInput` if it is malformed, or if its digest is not a SHA-256."""
        members = _object(descriptor, "a descriptor")
        artifact_type = members.get("artifactType")
        size_bytes = members.get("size")
        if not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or size_bytes < 0:
            raise InvalidInput(f"a descriptor's size is {size_bytes!r}")
        return Descriptor(
            _text(members.get("mediaType"), "a descriptor's mediaType"),
            parse_digest(_text(members.get("digest"), "a descriptor's digest")),
            size_bytes,
            annotations_from_json(members.get("annotations")),
            None if artifact_type is None else _text(artifact_type, "a descriptor's artifactType"),
        )


@dataclass(frozen=True)
class Manifest:
    """The manifest of an artifact: its config and its layers. For a report, `subject` is the manifest it is about."""

    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    subject: Descriptor | None = None

    def to_json(self) -> dict[str, Any]:
        manifest: dict[str, Any] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_MEDIA_TYPE,
            "artifactType": self.artifact_type,
            "config": self.config.to_json(),
            "layers": [layer.to_json() for layer in self.layers],
        }
        if self.subject is not None:
            manifest["subject"] = self.subject.to_json()
        if self.annotations:
            manifest["annotations"] = dict(self.annotations)
        return manifest

    def to_bytes(self) -> bytes:
        """Returns the manifest as canonical JSON, so that equal manifests have equal digests."""
        return canonical_json(self.to_json())

    @staticmethod
    def from_json(manifest: Any) -> Manifest:
        """Parses a manifest. Raises `InvalidInput` if it is not an OCI image manifest."""
        members = _object(manifest, "a manifest")
        version, media_type = members.get("schemaVersion"), members.get("mediaType", MANIFEST_MEDIA_TYPE)
        if version != 2 or media_type != MANIFEST_MEDIA_TYPE:
            raise InvalidInput(f"not an OCI image manifest: schemaVersion {version!r}, mediaType {media_type!r}")
        config = Descriptor.from_json(members.get("config"))
        layers = members.get("layers")
        if not isinstance(layers, list):
            raise InvalidInput("a manifest's layers are not a list")
        subject = members.get("subject")
        return Manifest(
            # The specification: if artifactType is absent, the config's media type is the artifact type.
            _text(members.get("artifactType", config.media_type), "a manifest's artifactType"),
            config,
            tuple(Descriptor.from_json(layer) for layer in layers),
            annotations_from_json(members.get("annotations")),
            None if subject is None else Descriptor.from_json(subject),
        )

    @staticmethod
    def from_bytes(data: bytes) -> Manifest:
        """Parses a manifest. Raises `InvalidInput` if it is malformed or larger than `LARGEST_MANIFEST_BYTES`."""
        check_manifest_size(len(data), "a manifest")
        try:
            return Manifest.from_json(json.loads(data))
        except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, or nested too deeply
            raise InvalidInput("a manifest is not JSON") from error


def check_manifest_size(size_bytes: int, what: str) -> None:
    """Raises `InvalidInput` if `what` is too large for a manifest. Call it before reading the bytes."""
    if size_bytes > LARGEST_MANIFEST_BYTES:
        raise InvalidInput(
            f"{what} has {size_bytes} bytes, but a manifest has at most {LARGEST_MANIFEST_BYTES}",
            hint="Octet did not write this manifest: get the artifact again from its source",
        )


def annotations_from_json(annotations: Any) -> dict[str, str]:
    """Parses annotations, which may be None. Raises `InvalidInput` if names or values are not strings."""
    members = {} if annotations is None else _object(annotations, "annotations")
    return {name: _text(value, f"the annotation {name}") for name, value in members.items()}


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is not a JSON object")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is not a string")
    return value
