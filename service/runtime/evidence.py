"""What the documents beside an artifact say about who built it. They are hostile: see docs/adr/0051."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from service.cache import OciLayout
from service.core.artifact import NUMERICS_ANNOTATION, SOURCE_ANNOTATION, TARGET_ANNOTATION, Report
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from service.core.provenance import STATEMENT_MEDIA_TYPE, Envelope, Provenance, TrustedKey
from service.core.provenance.envelope import MOST_BYTES
from service.core.strict_json import members, parse_strict

_MOST_DOCUMENTS = 32  # attestations of one artifact that are looked at


@dataclass(frozen=True)
class Evidence:
    """What is known of an artifact's origin.

    Attributes:
        provenance: what is said of it; None where nothing is. Without `key`, anybody may have said it.
        key: the trusted key that signed it, if one did.
        claimed: ids of the keys that are said to have signed it.
        problem: why it is not trusted; empty where it is.
    """

    provenance: Provenance | None
    key: TrustedKey | None
    claimed: tuple[str, ...] = ()
    problem: str = ""


def judged(
    documents: Iterable[bytes], keys: Sequence[TrustedKey], artifact: Digest, annotations: Mapping[str, str]
) -> Evidence:
    """The best evidence among `documents`, which come from wherever the artifact does.

    Args:
        keys: that are trusted.
        annotations: of the artifact's manifest.
    """
    best = Evidence(None, None, problem="it came without a statement of who built it")
    for document in documents:
        found = _judged(document, keys, artifact, annotations)
        if found.key is not None:
            return found
        if best.provenance is None:
            best = found
    return best


def _judged(document: bytes, keys: Sequence[TrustedKey], artifact: Digest, annotations: Mapping[str, str]) -> Evidence:
    try:
        envelope = _envelope(document)
        provenance = Provenance.from_bytes(envelope.payload if envelope else document, artifact)
        _check_annotations(provenance, annotations)
    except InvalidInput as error:
        return Evidence(None, None, problem=error.message)
    if envelope is None:
        return Evidence(provenance, None, problem="nobody signed it")
    claimed = tuple(signature.key_id for signature in envelope.signatures)
    key = next((key for key in keys if key.has_signed(envelope)), None)
    problem = "" if key else "it was not signed by a trusted key, or altered since"
    return Evidence(provenance, key, claimed, problem)


def _envelope(document: bytes) -> Envelope | None:
    """None: the document is a statement that nobody signed."""
    if "payloadType" not in members(parse_strict(document, MOST_BYTES, "a provenance"), "a provenance"):
        return None
    envelope = Envelope.from_bytes(document)
    if envelope.payload_type != STATEMENT_MEDIA_TYPE:
        raise InvalidInput("what is signed is no statement of in-toto's")
    return envelope


def _check_annotations(provenance: Provenance, annotations: Mapping[str, str]) -> None:
    """What the statement says is what the manifest says that it is about."""
    inputs = provenance.inputs
    said = {
        SOURCE_ANNOTATION: inputs.source,
        TARGET_ANNOTATION: inputs.target,
        NUMERICS_ANNOTATION: inputs.numerics,
    }
    for name, value in said.items():
        if annotations.get(name) != value:
            raise InvalidInput(f"its provenance says {value!r}, and its manifest {annotations.get(name)!r}")


def documents_about(layout: OciLayout, artifact: Digest) -> Iterator[bytes]:
    for content in layout.contents(artifact, Report.PROVENANCE)[:_MOST_DOCUMENTS]:
        with suppress(NotFound, CorruptBlob), layout.blobs.path(content).open("rb") as file:
            yield file.read(MOST_BYTES + 1)  # one byte more is too many, as the parser will find
