"""What the makers of the zoo's networks share: their command line, and the answers that they save."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CALIBRATED, ANSWERED = 6, 2  # samples that a tool is given, and those that are asked


def parsed(description: str | None, tools: Iterable[str]) -> argparse.Namespace:
    """`network`, one of `tools`, and `output`, a path."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("tool", choices=list(tools))
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def save(output: Path, answers: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Writes each sample into `FILE.npz`: `input<sample>_<place>`, `output<sample>_<place>`."""
    arrays: dict[str, Any] = {}
    for number, pair in enumerate(answers):
        for what, each in zip(("input", "output"), pair, strict=True):
            arrays |= {f"{what}{number}_{place}": np.asarray(array) for place, array in enumerate(each)}
    np.savez_compressed(output.with_name(output.name + ".npz"), **arrays)
