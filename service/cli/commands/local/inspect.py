"""`octet inspect`: shows a model file's contents, before anything is compiled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.configuration import load_checked
from service.cli.options import (
    DialectOption,
    FixOption,
    InputShapeOption,
    JsonOption,
    MemberOption,
    ModelFile,
    SignatureOption,
    UnsandboxedBuildOption,
    joined_shapes,
    joined_values,
)
from service.cli.output import Output, reporting
from service.cli.quantities import count
from service.cli.tables import Table
from service.cli.tables import facts as labelled
from service.core.errors import from_json
from service.core.system.installed import require_compiler

if TYPE_CHECKING:
    from service.core.models.facts import Facts, Outline
    from service.core.models.signature import TensorSpec


GraphOption = Annotated[
    bool, typer.Option("--graph", help="Print the operator graph instead, with the quantized type of every tensor.")
]
ConstantsOption = Annotated[
    bool,
    typer.Option(
        "--constants",
        help="With --graph: print the values of constants too, in the form that octet compile reads from a .qnn file.",
    ),
]


def inspect(
    file: ModelFile,
    graph: GraphOption = False,
    constants: ConstantsOption = False,
    member: MemberOption = "",
    signature: SignatureOption = "",
    input_shape: InputShapeOption = None,
    fix: FixOption = None,
    dialect: DialectOption = None,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a model file's signature, operators and quantization."""
    from service.core.models.facts import Facts

    part = (member, signature)
    with reporting(as_json) as output:
        require_compiler()
        if graph:
            given = joined_shapes(input_shape), constants, part, joined_values(fix)
            show_graph(output, file, as_json, allow_unsandboxed, *given)
            return
        found, _ = look_into(file, allow_unsandboxed, joined_shapes(input_shape), part=part, fix=joined_values(fix))
        if as_json:
            output.document(found.to_json())
        else:
            output.show(table_of(found) if isinstance(found, Facts) else outline_table(found))


def show_graph(
    output: Output,
    file: Path,
    as_json: bool,
    allow_unsandboxed: bool = False,
    input_shape: str = "",
    constants: bool = False,
    part: tuple[str, str] = ("", ""),
    fix: str = "",
) -> None:
    """Prints a model file's operators, one per line."""
    from service.core.models.facts import Outline

    found, text = look_into(file, allow_unsandboxed, input_shape, constants, part, fix)
    if isinstance(found, Outline):
        raise from_json(dict(found.error))
    output.document({"graph": text}) if as_json else output.text(text)


def look_into(
    file: Path,
    allow_unsandboxed: bool,
    input_shape: str = "",
    constants: bool = False,
    part: tuple[str, str] = ("", ""),
    fix: str = "",
) -> tuple[Facts | Outline, str]:
    """Returns a model file's facts and its graph; or its outline, if it cannot be compiled. `part` is the member and
    the signature that `upload_of` takes.
    """
    from service.compiler.build.inspection import inspect_file
    from service.compiler.importers.uploads import upload_of
    from service.core.builds.fixed import parse_fixed
    from service.core.builds.options import parse_shapes

    settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None})
    with upload_of(file, *part) as upload, tempfile.TemporaryDirectory() as within:
        given = parse_shapes(input_shape), parse_fixed(fix)
        return inspect_file(upload, Path(within), settings, *given, with_constants=constants)


def table_of(facts: Facts) -> Table:
    """Formats a model file's facts for people."""

    from service.cli.reports import floating_lines

    rows = [
        *([("runs", _runs(facts))] if facts.integer_macs is not None else []),
        *([("class", facts.computes)] if facts.computes else []),
        *(("in float", text) for text in floating_lines(facts.floating, facts.macs)),
        ("format", facts.format),
        *((f"input {spec.name}", _tensor(spec)) for spec in facts.signature.inputs),
        *((f"output {spec.name}", _tensor(spec)) for spec in facts.signature.outputs),
        *((f"state {state.spec.name}", _tensor(state.spec)) for state in facts.signature.states),
        *([("metadata", str(facts.metadata))] if facts.metadata else []),
        *(("notice", notice) for notice in facts.notices),
        ("weights", str(facts.weights or "not quantized")),
        ("activations", str(facts.activations or "not quantized")),
        ("parameters", f"{count(facts.parameters)}, {facts.parameter_bytes / 1e6:.1f} MB"),
        ("multiply-accumulates", count(facts.macs)),
        ("operators", ", ".join(f"{times} {name}" for name, times in _most_first(facts))),
    ]
    return labelled(rows)


def outline_table(outline: Outline) -> Table:
    """Formats the outline of a file that cannot be compiled: first the reason and what to do."""
    rows = [
        ("refused because", outline.error["message"]),
        *([("hint", outline.error["hint"])] if "hint" in outline.error else []),
        ("format", outline.format),
        *((f"input {name}", f"{dtype} {_shape(shape)}") for name, dtype, shape in outline.inputs),
        *((f"output {name}", f"{dtype} {_shape(shape)}") for name, dtype, shape in outline.outputs),
        ("quantized", "in part or whole" if outline.quantized else "no"),
        ("operators", ", ".join(f"{times} {name}" for name, times in _most_first(outline))),
    ]
    return labelled(rows)


def _runs(facts: Facts) -> str:
    """Returns how the model runs, in a phrase."""
    if not facts.floating:
        return "in integers"
    if not facts.integer_macs and facts.weights is None and facts.activations is None:
        return "in float"
    count = sum(group.count for group in facts.floating)
    share = (facts.integer_macs or 0) / facts.macs if facts.macs else 1.0
    operators = f"{count} operator{'s' if count > 1 else ''} in float"
    return f"{100 * share:.3g} % of the multiply-accumulates in integers, {operators}"


def _shape(shape: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if size in (None, '') else str(size) for size in shape)}]"


def _tensor(spec: TensorSpec) -> str:
    text = f"{spec.datatype} {list(spec.shape)}"
    if spec.bounds is not None:
        text += f", {spec.bounds.low:g} to {spec.bounds.high:g}"
    if spec.quantization is None:
        return text
    return f"{text}, real = {spec.quantization.scale:g} * (stored - {spec.quantization.zero_point})"


def _most_first(facts: Facts | Outline) -> list[tuple[str, int]]:
    return sorted(((name, times) for name, times in facts.operators.items()), key=lambda row: (-row[1], row[0]))
