"""`octet compare`: runs one input on every pool of a cluster, and compares the output bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from rich.text import Text

from service.cli.connection import connect
from service.cli.options import InputFiles, JsonOption, KeyOption, ServerOption
from service.cli.output import FAILURE, reporting
from service.cli.versions import ModelArgument, resolve_model
from service.core.errors import InvalidInput


def compare(
    model: ModelArgument,
    inputs: InputFiles,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one input on every pool of a cluster, and compare the outputs. The exit status is 1 if any two differ."""
    from service.runtime.protocol import read_input

    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        names = [spec["name"] for spec in client.metadata(name, version)["inputs"]]
        if len(names) != len(inputs):
            raise InvalidInput(f"{name} has {len(names)} inputs, but {len(inputs)} were given", hint=", ".join(names))
        found = client.compare(name, names, [read_input(path) for path in inputs], version)
        output.document(found) if as_json else output.show(*_lines(found))
        if found["equal"] is False:
            raise typer.Exit(FAILURE)


def _lines(found: dict[str, Any]) -> Iterator[Text]:
    result, style = {
        True: ("all answers are equal, byte for byte", "green"),
        False: ("the answers differ", "bold red"),
        None: ("fewer than two pools answered", "yellow"),
    }[found["equal"]]
    yield Text.assemble(f"{found['name']} version {found['version']}  ", (result, style))
    for answer in found["answers"]:
        yield Text(
            f"{answer['pool']}  {answer['target']}  {'; '.join(_describe_differences(answer, found['reference']))}",
            style="dim",
        )


def _describe_differences(answer: dict[str, Any], reference: str) -> Iterator[str]:
    if answer["problem"]:
        yield answer["problem"]
        return
    if not answer["differences"]:
        yield "answered"
    for each in answer["differences"]:
        if each["different"] is None:
            yield f"{each['output']} has another shape or type than that of {reference}"
        else:
            yield f"{each['different']} elements of {each['output']} differ from {reference}, first {each['first']}"
