"""Signatures as `cosign sign --key` leaves them: of the digest alone, under a tag that is made of it.

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
    """Adds a signature of `digest` to those that are there. Raises as `Registry` does."""
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
    layers = [*(each for each in _there(registry, digest) if not _is_own(each, signer, payload)), layer]
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


def _there(registry: Registry, digest: Digest) -> list[dict[str, Any]]:
    """The signatures that were added before, as they stand there."""
    try:
        manifest = json.loads(registry.manifest(tag_of(digest))[1])
        return [{**each, "digest": each["digest"]} for each in manifest["layers"]]
    except NotFound:
        return []
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InvalidInput(f"{tag_of(digest)} holds no signatures of cosign's", hint="delete the tag") from error


def _is_own(layer: Mapping[str, Any], signer: Signer, payload: bytes) -> bool:
    """Whether it is the signature that is to be added, from an earlier push."""
    said = layer.get("annotations")
    text = said.get(SIGNATURE_ANNOTATION) if isinstance(said, dict) else None
    if not isinstance(text, str):
        return False
    try:
        return signer.public.is_signature(base64.b64decode(text, validate=True), payload)
    except ValueError:
        return False
