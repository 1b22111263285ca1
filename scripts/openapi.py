"""Writes the OpenAPI document of the API: `python -m scripts.openapi FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from service.api.app import control_plane


def write(path: Path) -> None:
    """Writes the document, and creates its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(control_plane().openapi(), indent=1))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
