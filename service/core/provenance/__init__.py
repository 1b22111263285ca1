"""Who built an artifact from what: a statement about it, the envelope that signs it, and the keys."""

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
