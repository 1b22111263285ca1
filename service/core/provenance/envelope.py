"""Signed bytes in a DSSE envelope.

https://github.com/secure-systems-lab/dsse/blob/v1.0.2/{protocol,envelope}.md
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

from service.core.digest import canonical_json
from service.core.errors import InvalidInput
from service.core.strict_json import items, members, parse_strict, text

ENVELOPE_MEDIA_TYPE = "application/vnd.dsse.envelope.v1+json"
MOST_BYTES = 1 << 20  # a typical statement has a few thousand bytes
_MOST_SIGNATURES = 16
_MOST_SIGNATURE_BYTES = 512


@dataclass(frozen=True)
class Signature:
    """A signature in an envelope.

    Attributes:
        key_id: the id of the key, as given by the signer. The id itself is not signed, so it is a hint for people and
            is never used for a decision.
        value: the bytes of the signature.
    """

    key_id: str
    value: bytes


@dataclass(frozen=True)
class Envelope:
    """A payload, its media type, and signatures of both."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]

    @property
    def signed_bytes(self) -> bytes:
        return pre_authentication_encoding(self.payload_type, self.payload)

    def to_bytes(self) -> bytes:
        signatures = [{"keyid": each.key_id, "sig": _encoded(each.value)} for each in self.signatures]
        members = {"payloadType": self.payload_type, "payload": _encoded(self.payload), "signatures": signatures}
        return canonical_json(members)

    @staticmethod
    def from_bytes(data: bytes) -> Envelope:
        """Parses the result of `to_bytes`. Raises `InvalidInput` if `data` is malformed or too large."""
        envelope = members(parse_strict(data, MOST_BYTES, "an envelope"), "an envelope")
        return Envelope(
            text(envelope.get("payloadType"), "an envelope's payloadType"),
            _decoded(envelope.get("payload"), "an envelope's payload", MOST_BYTES),
            tuple(_signature(each) for each in items(envelope.get("signatures"), "signatures", _MOST_SIGNATURES)),
        )


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Returns the bytes that are signed (`PAE` in the protocol).

    The encoding contains the lengths of both parts, so that no bytes of one part can be mistaken for bytes of the
    other.
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _signature(value: Any) -> Signature:
    signature = members(value, "a signature")
    key_id = text(signature.get("keyid", ""), "a signature's keyid", 512)
    return Signature(key_id, _decoded(signature.get("sig"), "a signature", _MOST_SIGNATURE_BYTES))


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(value: Any, what: str, most_bytes: int) -> bytes:
    """Decodes base64 in the standard alphabet, with padding.

    The protocol demands that the URL-safe alphabet is accepted too, but signers write the standard one.
    """
    if not isinstance(value, str) or len(value) > 4 * -(-most_bytes // 3):
        raise InvalidInput(f"{what} is not a string of at most {most_bytes} bytes in base64")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidInput(f"{what} is not base64") from error
