"""Reads the facts and the graph of a model file without compiling it, in a sandboxed child."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from service.compiler.messages.building import INSPECT, PASSES, ImportRequest, PassesRequest
from service.compiler.messages.files import COMPLETE_GRAPH_FILE, GRAPH_FILE
from service.compiler.messages.role import Result, Role
from service.compiler.sandbox import Access, run_child, working
from service.compiler.sandbox.scratch import scratch_directory
from service.core.builds.fixed import Fixed
from service.core.models.facts import Facts, Outline
from service.core.settings import Settings
from service.core.target import Target

AnyRequest = TypeVar("AnyRequest", ImportRequest, PassesRequest)


def inspect_file(
    source: Path,
    within: Path,
    settings: Settings,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Fixed | None = None,
    *,
    with_constants: bool = False,
) -> tuple[Facts | Outline, str]:
    """Returns a model's facts and its graph as text; or an outline and no graph, if Octet cannot compile the model.

    Args:
        source: the file.
        within: the directory in which a directory for the child is created.
        shapes, fixed: the shapes and the fixed values of inputs, as for `importers.auto.import_model`.
        with_constants: true to return the graph as it was imported, with the values of constants, in the form that
            importers read.

    Raises:
        OctetError: the file is not a model that can be read. The error names the operator and the tensor.
    """
    with scratch_directory(within) as scratch:
        result = _ask(INSPECT, ImportRequest(source.absolute(), shapes or {}, fixed=fixed or {}), scratch, settings)
        written = scratch / (COMPLETE_GRAPH_FILE if with_constants else GRAPH_FILE)
        graph = "" if result.facts is None else written.read_text()
        return result.description, graph


def write_passes(
    source: Path,
    directory: Path,
    within: Path,
    settings: Settings,
    target: Target,
    numerics: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Fixed | None = None,
) -> tuple[str, list[str]]:
    """Writes the text of the model after each pass to a file of `directory`, which is created if needed. Returns the
    pipeline of passes as text, and the names of the files, in order.

    Args:
        source, within, shapes, fixed: as for `inspect_file`.

    Raises:
        OctetError: the model cannot be compiled. The error names the stage and the operator.
    """
    with scratch_directory(within) as scratch:
        request = PassesRequest(source.absolute(), shapes or {}, target.name, numerics, fixed or {})
        result = _ask(PASSES, request, scratch, settings)
        # If an upload has taken over the child, the child could leave a link, which this process would follow with the
        # rights of this process.
        written = sorted(
            path
            for path in scratch.iterdir()
            if path.suffix in (".qnn", ".txt") and path.is_file() and not path.is_symlink()
        )
        directory.mkdir(parents=True, exist_ok=True)
        for path in written:
            shutil.copyfile(path, directory / path.name)
        return result.pipeline, [path.name for path in written]


def _ask(role: Role[AnyRequest, Result], request: AnyRequest, scratch: Path, settings: Settings) -> Result:
    """Runs a child that may read the source and write into `scratch`, and returns its result."""
    members = run_child(
        role.name,
        request.to_json(),
        access=Access(readable=(request.source,), writable=(scratch,)),
        limits=working(settings.build_time_limit_s, settings.build_stall_limit_s, settings.build_memory_limit_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
    )
    return role.read_result(members)
