"""A certificate for 127.0.0.1 that nobody has signed, as `openssl` makes one."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TIMEOUT_S = 300.0  # which only a failure reaches


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """The certificate, which is its own authority, and its private key."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    subprocess.run(
        [*command.split(), "-addext", names, "-keyout", key, "-out", cert],
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    return cert, key
