"""Creates a self-signed certificate for 127.0.0.1 with `openssl`."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TIMEOUT_S = 300.0  # reached only if openssl hangs


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Returns the paths of the self-signed certificate and of its private key."""
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
