"""Provenance: a statement of who built an artifact from which inputs, its signed envelope, and the signing keys."""

from service.core.provenance.envelope import ENVELOPE_MEDIA_TYPE, Envelope
from service.core.provenance.keys import Signer, TrustedKey, signer_of, trusted_keys
from service.core.provenance.statement import STATEMENT_MEDIA_TYPE, Provenance

__all__ = [
    "ENVELOPE_MEDIA_TYPE",
    "STATEMENT_MEDIA_TYPE",
    "Envelope",
    "Provenance",
    "Signer",
    "TrustedKey",
    "signer_of",
    "trusted_keys",
]
