"""`octet inspect`: what a model file holds, before anything is compiled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from service.cli.options import InputShapeOption, JsonOption, ModelFile, load_checked
from service.cli.output import Output, reporting
from service.cli.quantities import count
from service.compiler.importers.uploads import upload_of
from service.core.facts import Facts
from service.core.options import parse_shapes
from service.core.signature import TensorSpec

GraphOption = Annotated[
    bool, typer.Option("--graph", help="Print the graph instead, with the quantized type of every tensor.")
]
AllowUnsandboxedOption = Annotated[
    bool, typer.Option("--allow-unsandboxed", help="Even where this kernel cannot lock the reader in.")
]


def inspect(
    file: ModelFile,
    graph: GraphOption = False,
    input_shape: InputShapeOption = "",
    allow_unsandboxed: AllowUnsandboxedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a model file holds: signature, operators, and how it is quantized."""
    with reporting(as_json) as output:
        if graph:
            show_graph(output, file, as_json, allow_unsandboxed, input_shape)
            return
        facts, _ = look_into(file, allow_unsandboxed, input_shape)
        output.document(facts.to_json()) if as_json else output.show(table_of(facts))


def show_graph(
    output: Output,
    file: Path,
    as_json: bool,
    allow_unsandboxed: bool = False,
    input_shape: str = "",
) -> None:
    """A model file's operators, one a line."""
    _, text = look_into(file, allow_unsandboxed, input_shape)
    output.document({"graph": text}) if as_json else print(text, end="")


def look_into(file: Path, allow_unsandboxed: bool, input_shape: str = "") -> tuple[Facts, str]:
    """A model file's facts and its graph."""
    from service.compiler.inspection import inspect_file

    settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None})
    with upload_of(file) as upload, tempfile.TemporaryDirectory() as within:
        return inspect_file(upload, Path(within), settings, parse_shapes(input_shape))


def table_of(facts: Facts) -> Table:
    """For people."""
    table = Table.grid(padding=(0, 2))
    rows = [
        ("format", facts.format),
        *((f"input {spec.name}", _tensor(spec)) for spec in facts.signature.inputs),
        *((f"output {spec.name}", _tensor(spec)) for spec in facts.signature.outputs),
        *((f"state {state.spec.name}", _tensor(state.spec)) for state in facts.signature.states),
        ("weights", str(facts.weights or "not quantized")),
        ("activations", str(facts.activations or "not quantized")),
        ("parameters", f"{count(facts.parameters)}, {facts.parameter_bytes / 1e6:.1f} MB"),
        ("multiply-accumulates", count(facts.macs)),
        ("operators", ", ".join(f"{times} {name}" for name, times in _most_first(facts))),
    ]
    for label, value in rows:
        table.add_row(Text(label, style="dim"), Text(value))
    return table


def _tensor(spec: TensorSpec) -> str:
    text = f"{spec.datatype} {list(spec.shape)}"
    if spec.bounds is not None:
        text += f", {spec.bounds.low:g} to {spec.bounds.high:g}"
    if spec.quantization is None:
        return text
    return f"{text}, real = {spec.quantization.scale:g} * (stored - {spec.quantization.zero_point})"


def _most_first(facts: Facts) -> list[tuple[str, int]]:
    return sorted(((name, times) for name, times in facts.operators.items()), key=lambda row: (-row[1], row[0]))
