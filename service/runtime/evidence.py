"""Reads the documents beside an artifact that state who built it. The documents may be hostile: see docs/adr/0051."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from service.cache import OciLayout
from service.core.artifacts.artifact import NUMERICS_ANNOTATION, SOURCE_ANNOTATION, TARGET_ANNOTATION, Report
from service.core.digest import Digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound
from service.core.provenance import Provenance, TrustedKey, opened
from service.core.provenance.envelope import MOST_BYTES

_MOST_DOCUMENTS = 32  # at most this many attestations of one artifact are read


@dataclass(frozen=True)
class Evidence:
    """The known facts about an artifact's origin.

    Attributes:
        provenance: the stated origin; None without a statement. If `key` is None, anyone could have written the
            statement.
        key: the trusted key that signed the statement; None if no trusted key did.
        claimed: ids of the keys that, according to the signatures, signed the statement.
        problem: why the artifact is not trusted; empty if it is trusted.
    """

    provenance: Provenance | None
    key: TrustedKey | None
    claimed: tuple[str, ...] = ()
    problem: str = ""


def judge(
    documents: Iterable[bytes], keys: Sequence[TrustedKey], artifact: Digest, annotations: Mapping[str, str]
) -> Evidence:
    """Returns the best evidence among `documents`, which come from the same source as the artifact.

    Args:
        keys: the trusted keys.
        annotations: the annotations of the artifact's manifest.
    """
    best = Evidence(None, None, problem="it came without a statement of who built it")
    for document in documents:
        found = _judge(document, keys, artifact, annotations)
        if found.key is not None:
            return found
        if best.provenance is None:
            best = found
    return best


def _judge(document: bytes, keys: Sequence[TrustedKey], artifact: Digest, annotations: Mapping[str, str]) -> Evidence:
    try:
        statement, envelope = opened(document)
        provenance = Provenance.from_bytes(statement, artifact)
        _check_annotations(provenance, annotations)
    except InvalidInput as error:
        return Evidence(None, None, problem=error.message)
    if envelope is None:
        return Evidence(provenance, None, problem="it is not signed")
    claimed = tuple(signature.key_id for signature in envelope.signatures)
    key = next((key for key in keys if key.has_signed(envelope)), None)
    problem = "" if key else "it was not signed by a trusted key, or altered since"
    return Evidence(provenance, key, claimed, problem)


def _check_annotations(provenance: Provenance, annotations: Mapping[str, str]) -> None:
    """Checks that the statement agrees with the manifest's annotations. Raises `InvalidInput` if it does not."""
    inputs = provenance.inputs
    stated = {
        SOURCE_ANNOTATION: inputs.source,
        TARGET_ANNOTATION: inputs.target,
        NUMERICS_ANNOTATION: inputs.numerics,
    }
    for name, value in stated.items():
        if annotations.get(name) != value:
            raise InvalidInput(
                f"its provenance states {name}={value!r}, but its manifest has {annotations.get(name)!r}"
            )


def documents_about(layout: OciLayout, artifact: Digest) -> Iterator[bytes]:
    for content in layout.contents(artifact, Report.PROVENANCE)[:_MOST_DOCUMENTS]:
        with suppress(NotFound, CorruptBlob), layout.blobs.path(content).open("rb") as file:
            yield file.read(
                MOST_BYTES + 1
            )  # if the document is longer than the limit, the parser gets one byte too many and refuses it
