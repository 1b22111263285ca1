"""Tests of which keys are accepted, and that the data beside a signature do not change whose signature it is."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from service.core.errors import InvalidInput
from service.core.provenance import Envelope, Signer, signer_of, trusted_keys
from service.core.provenance.envelope import Signature
from service.core.settings import Settings
from tests.support.signing import KINDS, needs_signatures, write_key, write_pair

pytestmark = needs_signatures
KIND, PAYLOAD = "application/vnd.in-toto+json", b'{"a":1}'


def signer(key: Path) -> Signer:
    found = signer_of(Settings(signing_key=key))
    assert found is not None
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_is_valid_only_for_the_signed_data(tmp_path: Path, kind: str) -> None:
    key, public = write_pair(tmp_path, kind=kind)
    envelope = signer(key).seal(KIND, PAYLOAD)
    (trusted,) = trusted_keys(Settings(trusted_keys=str(public)))
    assert trusted.has_signed(Envelope.from_bytes(envelope.to_bytes()))
    assert not trusted.has_signed(replace(envelope, payload=PAYLOAD + b" "))
    assert not trusted.has_signed(replace(envelope, payload_type="text/plain"))
    # The boundary between type and payload is signed too.
    assert not trusted.has_signed(replace(envelope, payload_type=KIND + " 7", payload=PAYLOAD[2:]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_signature_of_another_key_is_invalid_whatever_key_id_it_has(tmp_path: Path, kind: str, other: str) -> None:
    key, public = write_pair(tmp_path, "mine", kind)
    theirs, _ = write_pair(tmp_path, "theirs", other)
    (trusted,) = trusted_keys(Settings(trusted_keys=str(public)))
    forged = signer(theirs).seal(KIND, PAYLOAD)
    named = replace(forged, signatures=(Signature(trusted.id, forged.signatures[0].value),))
    assert not trusted.has_signed(named)
    own = signer(key).seal(KIND, PAYLOAD)
    assert trusted.has_signed(replace(own, signatures=(named.signatures[0], replace(own.signatures[0], key_id=""))))


@pytest.mark.parametrize("value", [b"", b"\0" * 64, b"\x30\x06\x02\x01\x00\x02\x01\x00", b"\xff" * 512])
@pytest.mark.parametrize("kind", KINDS)
def test_malformed_signatures_are_invalid(tmp_path: Path, kind: str, value: bytes) -> None:
    _, public = write_pair(tmp_path, kind=kind)
    (trusted,) = trusted_keys(Settings(trusted_keys=str(public)))
    assert not trusted.is_signature(value, b"data")


@pytest.mark.parametrize("kind", KINDS)
def test_openssl_verifies_what_was_signed(tmp_path: Path, kind: str) -> None:
    key, public = write_pair(tmp_path, kind=kind)
    envelope = signer(key).seal(KIND, PAYLOAD)
    (tmp_path / "data").write_bytes(envelope.signed_bytes)
    (tmp_path / "signature").write_bytes(envelope.signatures[0].value)
    how = ["-rawin"] if kind == "ed25519" else ["-rawin", "-digest", "sha256"]
    command: list[str | Path] = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, *how]
    command += ["-in", tmp_path / "data", "-sigfile", tmp_path / "signature"]
    subprocess.run(command, check=True, capture_output=True)


def test_keys_are_read_from_files_and_folders(tmp_path: Path) -> None:
    publics = [write_pair(tmp_path, name, kind)[1] for name, kind in (("a", "ed25519"), ("b", "ecdsa"))]
    (tmp_path / "both").write_bytes(b"# ours\n" + b"".join(each.read_bytes() for each in publics))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "c.pub").write_bytes(write_pair(tmp_path, "c")[1].read_bytes())
    found = trusted_keys(Settings(trusted_keys=f"{tmp_path / 'both'}:{folder}:{publics[0]}"))
    assert len({key.id for key in found}) == len(found) == 3


@pytest.mark.parametrize("problem", ["private", "nothing", "p384", "rsa", "missing", "empty folder", "broken", "colon"])
def test_a_path_without_a_key_is_an_error(tmp_path: Path, problem: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    key, public = write_pair(tmp_path, "good")
    (tmp_path / "nothing").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken").write_bytes(public.read_bytes().replace(b"MCow", b"MCox"))
    write_key(tmp_path, "rsa", rsa.generate_private_key(65537, 2048))
    wrong = {
        "private": key,
        "nothing": tmp_path / "nothing",
        "p384": write_pair(tmp_path, "curve", "p384")[1],
        "rsa": tmp_path / "rsa.pub",
        "missing": tmp_path / "missing",
        "empty folder": tmp_path / "folder",
        "broken": tmp_path / "broken",
    }
    named = ":" if problem == "colon" else f"{public}:{wrong[problem]}"
    with pytest.raises(InvalidInput):
        trusted_keys(Settings(trusted_keys=named))


@pytest.mark.parametrize("problem", ["password", "public", "p384", "missing"])
def test_an_unusable_signing_key_is_an_error(tmp_path: Path, problem: str) -> None:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    keys = {
        "password": write_key(tmp_path, "locked", ed25519.Ed25519PrivateKey.generate(), b"secret")[0],
        "public": write_pair(tmp_path)[1],
        "p384": write_pair(tmp_path, "curve", "p384")[0],
        "missing": tmp_path / "missing",
    }
    with pytest.raises(InvalidInput, match=keys[problem].name):
        signer_of(Settings(signing_key=keys[problem]))


def test_an_untrusted_signing_key_is_refused(tmp_path: Path) -> None:
    key, public = write_pair(tmp_path)
    other = write_pair(tmp_path, "other")[1]
    with pytest.raises(InvalidInput, match="is not in OCTET_TRUSTED_KEYS"):
        signer_of(Settings(signing_key=key, trusted_keys=str(other)))
    assert signer_of(Settings(signing_key=key, trusted_keys=f"{other}:{public}")) is not None


def test_by_default_nothing_is_signed_or_checked() -> None:
    assert signer_of(Settings()) is None
    assert trusted_keys(Settings()) == ()
