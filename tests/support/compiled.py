"""Compiles the sample models of the project to artifacts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.builds.build import Stage
from service.core.builds.options import with_batch
from service.core.digest import Digest, digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support.build_caches import share_caches

EXAMPLES = Path(__file__).parents[2] / "examples"
PICTURES = sorted((EXAMPLES / "digits").glob("*.png"))


class Unreported:
    """A `Progress` that discards all reports."""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


def compile_sample(file: str, layout: OciLayout, scratch: Path, batch: int = 1) -> Digest:
    """Compiles `examples/FILE` for this machine. Returns the artifact's digest."""
    return compile_file(EXAMPLES / file, layout, scratch, batch)


def compile_file(
    source: Path, layout: OciLayout, scratch: Path, batch: int = 1, numerics: str = "litert-reference"
) -> Digest:
    """Compiles a model file for this machine. Returns the artifact's digest."""
    scratch.mkdir(parents=True)
    share_caches(scratch)
    request = CompileRequest(source, digest_of_file(source), parse_target("host"), numerics, with_batch(batch))
    return compile_model(request, layout, scratch, Unreported(), Settings(data_dir=scratch, allow_unsandboxed=True))


def expected(file: str) -> npt.NDArray[Any]:
    """Returns LiteRT's outputs for `PICTURES`, `[10, 10]`."""
    answers = json.loads((EXAMPLES / "expected.json").read_text())[file]["reference"]
    return np.array(answers, np.int8 if "int8" in file and "uint8" not in file else np.uint8)
