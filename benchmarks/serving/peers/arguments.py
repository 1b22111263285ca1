"""Command-line arguments of a peer's server: `PORT RUNTIME MODEL SCRATCH`; SCRATCH is a folder for its files."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Arguments:
    port: int
    runtime: str
    model: str
    scratch: str


def arguments() -> Arguments:
    port, *others = sys.argv[1:]
    return Arguments(int(port), *others)
