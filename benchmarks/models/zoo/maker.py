"""Shared code of the programs that create the zoo's networks: their command line, and the results that they save."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CALIBRATED, ANSWERED = 6, 2  # number of samples for calibration, and of samples whose results are saved


def parsed(description: str | None, tools: Iterable[str]) -> argparse.Namespace:
    """Parses the command line: `network`, one of `tools`, and `output`, a path."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("tool", choices=list(tools))
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


def save(output: Path, answers: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Writes each sample into `FILE.npz`: `input<sample>_<index>`, `output<sample>_<index>`."""
    arrays: dict[str, Any] = {}
    for number, pair in enumerate(answers):
        for what, each in zip(("input", "output"), pair, strict=True):
            arrays |= {f"{what}{number}_{index}": np.asarray(array) for index, array in enumerate(each)}
    np.savez_compressed(output.with_name(output.name + ".npz"), **arrays)
