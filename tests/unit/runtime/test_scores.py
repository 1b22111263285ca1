"""Scores are read together with the key that signed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.digest import digest_of
from service.core.errors import InvalidInput, Untrusted
from service.core.provenance import Envelope, sealed, signer_of, trusted_keys
from service.core.settings import Settings
from service.runtime.scores import read_score
from tests.support.scores import score_of
from tests.support.signing import needs_signatures, write_pair

ARTIFACT = digest_of(b"an artifact")
STATEMENT = score_of(ARTIFACT, top1=0.8).to_bytes()


def test_without_trusted_keys_no_signature_is_required() -> None:
    found = read_score(STATEMENT, ARTIFACT, ())
    assert (found.score.metrics["top1"].value, found.key, found.claimed) == (0.8, None, ())


@needs_signatures
def test_a_trusted_key_must_have_signed_what_is_read(tmp_path: Path) -> None:
    key, public = write_pair(tmp_path)
    stranger, _ = write_pair(tmp_path, "stranger")
    keys = trusted_keys(Settings(trusted_keys=str(public)))

    def signed(by: Path) -> bytes:
        return sealed(STATEMENT, signer_of(Settings(signing_key=by)))[0]

    found = read_score(signed(key), ARTIFACT, keys)
    assert found.key is not None
    assert (found.key.name, found.claimed) == ("octet.pub", (found.key.id,))
    with pytest.raises(Untrusted, match="is not signed"):
        read_score(STATEMENT, ARTIFACT, keys)
    with pytest.raises(Untrusted, match="not signed by a trusted key, or altered since"):
        read_score(signed(stranger), ARTIFACT, keys)
    envelope = Envelope.from_bytes(signed(key))
    better = Envelope(
        envelope.payload_type, envelope.payload.replace(b'"value":0.8', b'"value":0.9'), envelope.signatures
    )
    assert better.payload != envelope.payload
    with pytest.raises(Untrusted, match="altered since"):
        read_score(better.to_bytes(), ARTIFACT, keys)


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"\xff", b'{"payloadType":"text/plain","payload":"","signatures":[]}']
)
def test_a_malformed_document_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_score(document, ARTIFACT, ())
