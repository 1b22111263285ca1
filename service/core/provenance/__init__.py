"""Statements about artifacts: who built one from which inputs (provenance), and how well it does on a data set (score);
their signed envelope, and the signing keys.
"""

from service.core.provenance.envelope import ENVELOPE_MEDIA_TYPE, Envelope
from service.core.provenance.in_toto import STATEMENT_MEDIA_TYPE, opened, sealed
from service.core.provenance.keys import Signer, TrustedKey, signer_of, trusted_keys
from service.core.provenance.score import Score
from service.core.provenance.statement import Provenance

__all__ = [
    "ENVELOPE_MEDIA_TYPE",
    "STATEMENT_MEDIA_TYPE",
    "Envelope",
    "Provenance",
    "Score",
    "Signer",
    "TrustedKey",
    "opened",
    "sealed",
    "signer_of",
    "trusted_keys",
]
