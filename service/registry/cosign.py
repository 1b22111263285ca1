"""Signatures like those of `cosign sign --key`: each covers only the digest of an artifact, and has a tag that is
derived from this digest.

https://github.com/sigstore/cosign/blob/v2.4.0/specs/SIGNATURE_SPEC.md
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from service.cache import MANIFEST_MEDIA_TYPE
from service.core.digest import Digest, canonical_json, digest_of
from service.core.errors import InvalidInput, NotFound
from service.core.provenance import Signer

if TYPE_CHECKING:
    from service.registry.client import Registry

PAYLOAD_MEDIA_TYPE = "application/vnd.dev.cosign.simplesigning.v1+json"
SIGNATURE_ANNOTATION = "dev.cosignproject.cosign/signature"
_CONFIG_MEDIA_TYPE = "application/vnd.oci.image.config.v1+json"


def tag_of(digest: Digest) -> str:
    return digest.replace(":", "-") + ".sig"


def sign(registry: Registry, digest: Digest, signer: Signer) -> None:
    """Adds a signature of `digest` to the existing ones. Raises the errors of `Registry`."""
    reference = registry.reference
    payload = canonical_json(
        {
            "critical": {
                "identity": {"docker-reference": f"{reference.host}/{reference.repository}"},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    )
    layer = {
        "mediaType": PAYLOAD_MEDIA_TYPE,
        "size": len(payload),
        "digest": digest_of(payload),
        "annotations": {SIGNATURE_ANNOTATION: base64.b64encode(signer.sign(payload)).decode()},
    }
    layers = [
        *(each for each in _existing_layers(registry, digest) if not _is_same_signature(each, signer, payload)),
        layer,
    ]
    config = canonical_json(
        {
            "architecture": "",
            "os": "",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
        }
    )
    for blob in (payload, config):
        registry.put_blob(digest_of(blob), blob)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": {"mediaType": _CONFIG_MEDIA_TYPE, "size": len(config), "digest": digest_of(config)},
        "layers": layers,
    }
    registry.put_manifest(tag_of(digest), MANIFEST_MEDIA_TYPE, canonical_json(manifest))


def _existing_layers(registry: Registry, digest: Digest) -> list[dict[str, Any]]:
    """Returns the existing signatures, unchanged."""
    try:
        manifest = json.loads(registry.manifest(tag_of(digest))[1])
        return [{**each, "digest": each["digest"]} for each in manifest["layers"]]
    except NotFound:
        return []
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{tag_of(digest)} contains no cosign signatures", hint="delete the tag") from error


def _is_same_signature(layer: Mapping[str, Any], signer: Signer, payload: bytes) -> bool:
    """Returns true if `layer` contains the same signature, from an earlier push."""
    annotations = layer.get("annotations")
    text = annotations.get(SIGNATURE_ANNOTATION) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return False
    try:
        return signer.public.is_signature(base64.b64decode(text, validate=True), payload)
    except ValueError:
        return False
