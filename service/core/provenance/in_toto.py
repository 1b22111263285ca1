"""Statements about an artifact: the form that provenance and scores share, and its signed envelope.

https://github.com/in-toto/attestation/blob/v1.0/spec/v1.0/statement.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from service.core.digest import Digest, canonical_json, parse_digest
from service.core.errors import InvalidInput
from service.core.provenance.envelope import ENVELOPE_MEDIA_TYPE, MOST_BYTES, Envelope
from service.core.strict_json import items, members, parse_strict, text

if TYPE_CHECKING:
    from service.core.provenance.keys import Signer

STATEMENT_MEDIA_TYPE = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_MOST_SUBJECTS = 64


def statement_about(artifact: Digest, predicate_type: str, predicate: Mapping[str, Any]) -> bytes:
    """Returns a statement about an artifact as canonical JSON."""
    return canonical_json(
        {
            "_type": _STATEMENT,
            "subject": [{"digest": digest_set(artifact)}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def predicate_of(data: bytes, artifact: Digest, predicate_type: str, what: str) -> dict[str, Any]:
    """Parses a statement about `artifact`, and returns its predicate. Unknown members are ignored, as in-toto requires.

    Args:
        what: the name of such statements, for error messages.

    Raises:
        InvalidInput: `data` is not a statement, its predicate has another type, or it is about another artifact.
    """
    statement = members(parse_strict(data, MOST_BYTES, "a statement"), "a statement")
    if (statement.get("_type"), statement.get("predicateType")) != (_STATEMENT, predicate_type):
        raise InvalidInput(f"the statement is not {what}")
    subjects = items(statement.get("subject"), "a statement's subject", _MOST_SUBJECTS)
    if artifact not in {parse_digest_set(each, "a subject") for each in subjects}:
        raise InvalidInput(f"the statement is about another artifact than {artifact}")
    return members(statement.get("predicate"), "the predicate")


def digest_set(digest: Digest) -> dict[str, str]:
    """Returns `digest` as a `DigestSet` of in-toto."""
    return {"sha256": digest.removeprefix("sha256:")}


def parse_digest_set(value: Any, what: str) -> Digest:
    """Parses the member `digest` of `value`, a `DigestSet` that has to contain a SHA-256. Digests of other algorithms
    are ignored.
    """
    digests = members(members(value, what).get("digest"), f"the digest of {what}")
    return parse_digest("sha256:" + text(digests.get("sha256"), f"the SHA-256 of {what}"))


def sealed(statement: bytes, signer: Signer | None) -> tuple[bytes, str]:
    """Returns a statement in the form that is stored, and the media type of this form: in a signed envelope, or as it
    is without a signer.
    """
    if signer is None:
        return statement, STATEMENT_MEDIA_TYPE
    return signer.seal(STATEMENT_MEDIA_TYPE, statement).to_bytes(), ENVELOPE_MEDIA_TYPE


def opened(document: bytes) -> tuple[bytes, Envelope | None]:
    """Returns the statement in a stored document, and the signed envelope that contains it; None if it is not signed.

    Raises:
        InvalidInput: the document is malformed or too large, or the envelope contains something else.
    """
    if "payloadType" not in members(parse_strict(document, MOST_BYTES, "a statement"), "a statement"):
        return document, None
    envelope = Envelope.from_bytes(document)
    if envelope.payload_type != STATEMENT_MEDIA_TYPE:
        raise InvalidInput("the signed payload is not an in-toto statement")
    return envelope.payload, envelope
