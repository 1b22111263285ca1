"""`octet dialect`: shows and proves what a Python file adds to the compiler."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from service.cli.configuration import load_checked
from service.cli.options import JsonOption, UnsandboxedBuildOption, configure_dialects
from service.cli.output import FAILURE, reporting
from service.cli.quantities import count
from service.cli.tables import Table, number, text, whole
from service.core.builds.numerics import ONNXRUNTIME, parse_mode
from service.core.errors import InvalidInput
from service.core.system.installed import require_compiler

Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Python files that define dialects.", exists=True, dir_okay=False),
]

dialect = typer.Typer(help="Show and prove what a Python file adds to the compiler.", no_args_is_help=True)


@dialect.command()
def show(files: Files, allow_unsandboxed: UnsandboxedBuildOption = False, as_json: JsonOption = False) -> None:
    """List the operators, patterns, passes and file formats of dialects."""
    with reporting(as_json) as output:
        require_compiler()
        from service.compiler.build.dialects import add_formats

        configure_dialects(files)
        found = add_formats(load_checked({"allow_unsandboxed": allow_unsandboxed or None}))
        if as_json:
            output.document([each.to_json() for each in found])
            return
        table = Table(whole("dialect"), text("adds"), text())
        for each in found:
            for name in each.operators:
                table.add(each.name, "operator", name)
            for kind, names in (("pattern", each.patterns), ("pass", each.passes)):
                for name in names:
                    table.add(each.name, kind, name)
            for made in each.formats:
                table.add(each.name, "format", f"{made.name}, compiled in {made.numerics}")
        output.show(table)


@dialect.command()
def prove(
    files: Files,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", help="A target whose code runs here. Repeatable.", show_default="all of them"),
    ] = None,
    numerics: Annotated[
        str, typer.Option("--numerics", help="The numerics mode that converts between real and stored values.")
    ] = ONNXRUNTIME,
    operator: Annotated[
        list[str] | None, typer.Option("--operator", help="An operator of the files. Repeatable.", show_default="all")
    ] = None,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile each operator, and compare every result with the oracle: all 8-bit inputs, and samples of wider ones.

    Runs the code of the files in this process. Exit status 1: a result differs, or an operator has no form to compare.
    """

    from service.core.target import TARGETS, detect_host, parse_target

    with reporting(as_json) as output:
        require_compiler()
        from service.compiler.build.proof import prove
        from service.compiler.dialects import loading
        from service.compiler.dialects.dialect import DIALECTS

        configure_dialects(files)
        settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None})
        loading.load_configured()
        known = {each.name: each for made in DIALECTS.values() for each in made.operators.values()}
        for name in operator or ():
            if name not in known:
                raise InvalidInput(f"the files define no operator {name!r}", hint=f"they define: {', '.join(known)}")
        host = detect_host()
        own = [each.name for each in TARGETS if not each.missing_on(host)]
        targets = [parse_target(each).name for each in target] if target else own
        proofs = []
        for name in operator or known:
            for each in prove(known[name], targets, parse_mode(numerics), settings, output.note):
                proofs.append(each)
        if as_json:
            output.document([dataclasses.asdict(each) for each in proofs])
        else:
            table = Table(
                whole("operator"), text("form"), whole("target"), number("compared"), number("different"), text()
            )
            for each in proofs:
                numbers = (count(each.compared), count(each.different)) if each.compared else ("", "")
                table.add(each.operator, each.form, each.target, *numbers, each.refusal)
            output.show(table)
        compared = {each.operator for each in proofs if each.compared}
        if any(each.different for each in proofs) or compared != set(operator or known):
            raise typer.Exit(FAILURE)
