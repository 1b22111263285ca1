"""Looks into a model file without compiling it, in a sandboxed child like every step that reads an upload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.compiler.sandbox import Access, Limits, run_child
from service.compiler.sandbox.scratch import scratch_directory
from service.core.facts import Facts
from service.core.settings import Settings

GRAPH_FILE = "graph.txt"


def inspect_file(
    source: Path, within: Path, settings: Settings, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Facts, str]:
    """A model's facts, and its graph as text.

    Args:
        source: the file.
        within: where the child may have a directory of its own.
        shapes: of the inputs, as for `importers.auto.import_model`.

    Raises:
        OctetError: it is no model that Octet reads; says at which operator and tensor.
    """
    wall_s, memory = settings.build_time_limit_s, settings.build_memory_limit_bytes
    with scratch_directory(within) as scratch:
        answer: Mapping[str, Any] = run_child(
            "inspect",
            {"source": str(source.absolute()), "shapes": dict(shapes or {})},
            access=Access(readable=(source.absolute(),), writable=(scratch,)),
            limits=Limits(wall_s=wall_s, cpu_s=2 * wall_s, memory_bytes=memory, file_bytes=memory),
            allow_unsandboxed=settings.allow_unsandboxed,
        )
        return Facts.from_json(answer["facts"]), (scratch / GRAPH_FILE).read_text()
