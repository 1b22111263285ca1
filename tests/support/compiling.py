"""Compiles models and loads them, so that tests can run them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service import runtime
from service.compiler.build.pipeline import CompileRequest, make
from service.compiler.build.steps import Steps
from service.core.builds.build import Stage
from service.core.builds.options import batch_of
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target


class Quiet:
    """A `Progress` that discards all reports."""

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        pass

    def log(self, line: str) -> None:
        pass


def compiled(
    source: Path, numerics: str, folder: Path, target: str = "host", options: Mapping[str, Any] | None = None
) -> runtime.Model:
    """Imports, compiles and links `source` in sandboxed children, for a target that this machine can run, and loads it.

    Unlike `compile_model`, this function neither computes the outputs of the oracle and of the reference runtime nor
    compares them with those of the compiled model: its callers compare the model with answers of their own.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    request = CompileRequest(source, digest_of_file(source), parse_target(target), numerics, options or {})
    steps = Steps(request, scratch, Quiet(), Settings())
    signature = steps.imported().signature.batched(batch_of(request.options))
    model = make(steps, signature)
    return runtime.load_files(model.config, model.library, model.constants)
