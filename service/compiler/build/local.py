"""Compiles a file into a folder, without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.compiler.build.dialects import add_formats
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.tuning import build_artifact
from service.compiler.importers.detect import format_of
from service.compiler.sandbox.scratch import scratch_directory
from service.core.artifacts.artifact import Report
from service.core.builds.build import Progress
from service.core.builds.numerics import DEFAULT_MODE, parse_mode
from service.core.digest import Digest, digest_of_file
from service.core.settings import Settings
from service.core.system.cores import usable_cores
from service.core.target import parse_target

_REPORTS = (Report.NUMERICS, Report.COVERAGE, Report.PROFILE)


def compile_to(
    file: Path,
    directory: Path,
    target: str,
    numerics: str | None,
    options: Mapping[str, Any],
    settings: Settings,
    progress: Progress,
) -> tuple[Digest, dict[str, Any]]:
    """Compiles `file` into the OCI layout at `directory`. Returns the artifact's digest, and its reports by name.

    Args:
        target: the name of a target, or "host".
        numerics: the name of a numerics mode; None for the default of the file's format.
        options: the options of the build (`core.builds.options`).

    Raises:
        OctetError: the model cannot be compiled, or its outputs differ from those of the reference runtime.
    """
    add_formats(settings)
    with file.open("rb") as source:
        model_format = format_of(source)
    mode = parse_mode(numerics) if numerics else DEFAULT_MODE[model_format]
    request = CompileRequest(file.resolve(), digest_of_file(file), parse_target(target), mode, options)
    directory.mkdir(parents=True, exist_ok=True)
    layout = OciLayout(directory)
    # This process serves nothing, so the build may use the whole machine.
    settings = settings.model_copy(update={"build_nice": 0, "build_cores": len(usable_cores())})
    with scratch_directory(directory) as scratch:
        digest = build_artifact(request, layout, scratch, progress, settings)
    attached = {kind.name.lower(): layout.attached(digest, kind) for kind in _REPORTS}
    return digest, {name: json.loads(report) for name, report in attached.items() if report}
