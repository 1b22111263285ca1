"""Turns the result of an evaluation into the document that is attached to the artifact, signed if there is a key."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.digest import Digest
from service.core.provenance import Score, sealed, signer_of
from service.core.settings import Settings
from service.evaluate.evaluation import Evaluation


def document_of(evaluation: Evaluation, settings: Settings) -> bytes:
    """Returns the score as a statement; in a signed envelope, if the settings name a signing key.

    Raises:
        InvalidInput: the signing key cannot be used; or a user's metric has a name that is too long or not printable.
        Unsupported: signing needs a package that is not installed.
    """
    score = Score(
        evaluation.subject.artifact,
        evaluation.data,
        evaluation.data_digest,
        evaluation.inputs,
        evaluation.metrics,
        evaluation.reference or "",
        evaluation.reference_metrics,
        evaluation.scorer,
        evaluation.preprocessing.to_json(),
        settings.builder_id,
        version("octet-serve"),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )
    statement = score.to_bytes()
    Score.from_bytes(statement, score.artifact)  # a reader must accept what is written
    return sealed(statement, signer_of(settings))[0]


def attach(layout: OciLayout, artifact: Digest, document: bytes) -> None:
    """Attaches a score to an artifact. It replaces an earlier score."""
    layout.attach(artifact, Report.SCORE, document)
