"""Creates signing keys for one test."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

needs_signatures = pytest.mark.skipif(
    find_spec("cryptography") is None, reason="signatures are not checked: cryptography is not installed"
)
KINDS = ("ed25519", "ecdsa")


def write_pair(folder: Path, name: str = "octet", kind: str = "ed25519") -> tuple[Path, Path]:
    """Writes a new private key and its public key to PEM files. Returns their paths."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    makers: dict[str, Callable[[], Any]] = {
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    }
    return write_key(folder, name, makers[kind]())


def write_key(folder: Path, name: str, private: Any, password: bytes | None = None) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as pem

    hidden: Any = pem.BestAvailableEncryption(password) if password else pem.NoEncryption()
    key, public = folder / f"{name}.key", folder / f"{name}.pub"
    key.write_bytes(private.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, hidden))
    public.write_bytes(private.public_key().public_bytes(pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo))
    return key, public
