"""Compares the working tree with a revision of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def base_revision() -> str:
    """Returns the revision that a branch started from; on that branch itself, the parent of its last commit."""
    head = git("rev-parse", "HEAD").strip()
    try:
        base = git("merge-base", "origin/main", "HEAD").strip()
    except subprocess.CalledProcessError:
        base = head
    return base if base != head else git("rev-list", "--max-count=2", "HEAD").split()[-1]


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout
