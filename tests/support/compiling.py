"""Compiles and loads artifacts, so that tests can run them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service import runtime
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.builds.build import Stage
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
    """Compiles `source` in a store inside `folder`, for a target that this machine can run, and loads the artifact."""
    scratch = folder / "scratch"
    scratch.mkdir()
    layout = OciLayout(folder / "store")
    request = CompileRequest(source, digest_of_file(source), parse_target(target), numerics, options or {})
    return runtime.load(layout, compile_model(request, layout, scratch, Quiet(), Settings()))
