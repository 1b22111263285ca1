"""Reads the score that is attached to an artifact. The document may be hostile, as `evidence` describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.digest import Digest
from service.core.errors import Untrusted
from service.core.provenance import Score, TrustedKey, opened


@dataclass(frozen=True)
class SignedScore:
    """A score, and who signed it.

    Attributes:
        key: the trusted key that signed it; None if no trusted key did, or none is configured.
        claimed: ids of the keys that, according to the signatures, signed it.
    """

    score: Score
    key: TrustedKey | None
    claimed: tuple[str, ...]


def read_score(document: bytes, artifact: Digest, keys: Sequence[TrustedKey]) -> SignedScore:
    """Parses a score of `artifact`.

    Args:
        keys: the trusted keys; without any, signatures are not required.

    Raises:
        InvalidInput: the document is malformed, or about another artifact.
        Untrusted: there are trusted keys, and none of them signed the document.
    """
    statement, envelope = opened(document)
    score = Score.from_bytes(statement, artifact)
    key = next((key for key in keys if envelope is not None and key.has_signed(envelope)), None)
    if keys and key is None:
        problem = "is not signed" if envelope is None else "was not signed by a trusted key, or altered since"
        raise Untrusted(
            f"the score of artifact {artifact} {problem}",
            hint="set OCTET_SIGNING_KEY to a key in OCTET_TRUSTED_KEYS, and run octet evaluate --attach",
        )
    return SignedScore(score, key, () if envelope is None else tuple(each.key_id for each in envelope.signatures))


def attached_score(layout: OciLayout, artifact: Digest, keys: Sequence[TrustedKey]) -> SignedScore | None:
    """Returns the score that is attached to an artifact; None if there is none. Raises the errors of `read_score`."""
    document = layout.attached(artifact, Report.SCORE)
    return None if document is None else read_score(document, artifact, keys)
