"""Keys of the builders of artifacts: Ed25519 (RFC 8032), or ECDSA on P-256 with SHA-256, as cosign creates them.

The type of the key alone decides the signature algorithm. Nothing in the signed data or beside a signature can choose
another.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.core.errors import InvalidInput, Unsupported
from service.core.provenance.envelope import Envelope, Signature, pre_authentication_encoding

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from service.core.settings import Settings

_INSTALL = "pip install 'octet-serve[signing]'"
_MAKE = "openssl genpkey -algorithm ed25519 -out octet.key; openssl pkey -in octet.key -pubout -out octet.pub"
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_MOST_FILE_BYTES, _MOST_KEYS = 64 << 10, 64


@dataclass(frozen=True)
class TrustedKey:
    """A public key whose signatures are trusted.

    Attributes:
        name: the name of the key's file.
        id: the SHA-256 of the key's SubjectPublicKeyInfo in DER.
    """

    name: str
    id: str
    _public: Ed25519PublicKey | EllipticCurvePublicKey

    def is_signature(self, value: bytes, data: bytes) -> bool:
        """Returns true if `value` is this key's signature of `data`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            if isinstance(self._public, Ed25519PublicKey):
                self._public.verify(value, data)
            else:
                self._public.verify(value, data, _ecdsa())
        except InvalidSignature:
            return False
        return True

    def has_signed(self, envelope: Envelope) -> bool:
        """Returns true if one of the envelope's signatures was made by this key. The key ids in the envelope are
        ignored.
        """
        return any(self.is_signature(each.value, envelope.signed_bytes) for each in envelope.signatures)


@dataclass(frozen=True)
class Signer:
    """A private key that signs artifacts.

    Attributes:
        public: the public key of the pair.
    """

    public: TrustedKey
    _private: Ed25519PrivateKey | EllipticCurvePrivateKey

    def sign(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature: bytes
        if isinstance(self._private, Ed25519PrivateKey):
            signature = self._private.sign(data)
        else:
            signature = self._private.sign(data, _ecdsa())
        return signature

    def seal(self, payload_type: str, payload: bytes) -> Envelope:
        signature = self.sign(pre_authentication_encoding(payload_type, payload))
        return Envelope(payload_type, payload, (Signature(self.public.id, signature),))


def signer_of(settings: Settings) -> Signer | None:
    """Loads the key in the setting `signing_key`; returns None if it is not set.

    Raises:
        InvalidInput: the file does not contain a private key. Or there are trusted keys, but this key is not one of
            them: this server would then refuse the artifacts that it builds.
        Unsupported: the package `cryptography` is not installed.
    """
    if settings.signing_key is None:
        return None
    signer = _signer(settings.signing_key)
    trusted = trusted_keys(settings)
    if trusted and signer.public.id not in {key.id for key in trusted}:
        raise InvalidInput(
            f"the public key of the signing key {settings.signing_key} is not in OCTET_TRUSTED_KEYS: this server would "
            "refuse the artifacts that it builds",
            hint=f"add it to the trusted keys: openssl pkey -in {settings.signing_key} -pubout",
        )
    return signer


def trusted_keys(settings: Settings) -> tuple[TrustedKey, ...]:
    """Loads the keys in the setting `trusted_keys`. If the setting is empty, returns no keys: signatures are not
    required.

    Raises:
        InvalidInput: a file or folder contains no public key, or contains something else too. A path is never skipped
            silently.
        Unsupported: the package `cryptography` is not installed.
    """
    if not settings.trusted_keys.strip():
        return ()
    keys: dict[str, TrustedKey] = {}
    for path in _files(Path(part.strip()).expanduser() for part in settings.trusted_keys.split(":") if part.strip()):
        for key in _public_keys(path):
            keys.setdefault(key.id, key)
    if not 1 <= len(keys) <= _MOST_KEYS:
        raise InvalidInput(f"OCTET_TRUSTED_KEYS names {len(keys)} keys, not 1 to {_MOST_KEYS}", hint=_MAKE)
    return tuple(keys.values())


def _files(paths: Iterator[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(each for each in path.iterdir() if each.suffix in (".pem", ".pub"))
        if not found:
            raise InvalidInput(f"the folder {path} of trusted keys holds no .pem or .pub file", hint=_MAKE)
        yield from found


def _public_keys(path: Path) -> Sequence[TrustedKey]:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = _read(path)
    blocks = [match[0] for match in _BLOCK.finditer(data) if match[1] == b"PUBLIC KEY"]
    if not blocks or data.count(b"-----BEGIN ") != len(blocks):
        raise InvalidInput(f"{path} must contain public keys in PEM and nothing else", hint=_MAKE)
    try:
        return [_trusted(path, load_pem_public_key(block)) for block in blocks]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(f"{path} holds a public key that cannot be read: {error}", hint=_MAKE) from error


def _signer(path: Path) -> Signer:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        private = load_pem_private_key(_read(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: the key needs a password
        raise InvalidInput(f"{path} is not a private key in PEM, without a password: {error}", hint=_MAKE) from error
    if not isinstance(private, Ed25519PrivateKey | EllipticCurvePrivateKey):
        raise _other_kind(path)
    return Signer(_trusted(path, private.public_key()), private)


def _trusted(path: Path, public: object) -> TrustedKey:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    if not isinstance(public, Ed25519PublicKey | EllipticCurvePublicKey):
        raise _other_kind(path)
    if isinstance(public, EllipticCurvePublicKey) and not isinstance(public.curve, SECP256R1):
        raise _other_kind(path)
    der: bytes = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return TrustedKey(path.name, hashlib.sha256(der).hexdigest(), public)


def _ecdsa() -> ECDSA:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

    return ECDSA(SHA256())


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"the key {path} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_FILE_BYTES:
        raise InvalidInput(f"{path} is larger than {_MOST_FILE_BYTES} bytes, the limit for a file of keys")
    return data


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported("signatures need cryptography, which is not installed", hint=_INSTALL) from error


def _other_kind(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} contains a key that is neither Ed25519 nor ECDSA on P-256", hint=_MAKE)
