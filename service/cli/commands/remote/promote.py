"""`octet promote` and `octet rollback`: choose the version that serves requests without a version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.connection import connect
from service.cli.options import JsonOption, KeyOption, ServerOption, server_flag
from service.cli.output import Output, reporting
from service.core.errors import InvalidInput, NotFound
from service.core.models.alias import ALL_PERCENT, STABLE

if TYPE_CHECKING:
    from service.cli.client import Client


NameArgument = Annotated[str, typer.Argument(help="The model's name, as octet models lists it.")]
AliasOption = Annotated[
    str, typer.Option("--alias", help='The alias to change. Requests without a version go to the alias "stable".')
]


def promote(
    name: NameArgument,
    version: Annotated[int, typer.Argument(min=1, help="The version to send requests to.")],
    alias: AliasOption = STABLE,
    percent: Annotated[
        int,
        typer.Option(
            "--percent",
            min=1,
            max=ALL_PERCENT,
            help="The share of requests to send to it. Less than 100 makes the version a canary.",
        ),
    ] = ALL_PERCENT,
    least: Annotated[
        list[str] | None,
        typer.Option(
            "--least",
            metavar="SCORE=NUMBER",
            help="Promote the version only if octet evaluate --attach has measured at least this score: top1=0.7, or "
            "top1.low=0.7 for the lower end of its confidence interval. May be repeated.",
        ),
    ] = None,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send all or part of the requests for a model to this version."""
    with reporting(as_json) as output, connect(server, key) as client:
        _show(output, name, client.promote(name, version, alias, percent, parse_least(least or ())))
        if percent < ALL_PERCENT and not as_json:
            output.next_command(f"octet promote {name} {version}{server_flag(server)}")


def rollback(
    name: NameArgument,
    alias: AliasOption = STABLE,
    away_from: Annotated[
        int | None,
        typer.Option("--from", min=1, help="The version to roll back from.", show_default="the last promoted"),
    ] = None,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Return to the previous version: end a canary, or undo a promotion."""
    with reporting(as_json) as output, connect(server, key) as client:
        _show(output, name, client.rollback(name, alias, away_from or _promoted_last(client, name, alias)))


def parse_least(texts: Sequence[str]) -> dict[str, float]:
    """Parses scores such as `top1=0.7`. Raises `InvalidInput` if one is malformed, or occurs twice."""
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or name in found or not math.isfinite(value):
            raise InvalidInput(f"{text!r} is not the least value of one more score", hint="write it like top1=0.7")
        found[name] = value
    return found


def _promoted_last(client: Client, name: str, alias: str) -> int:
    """Returns the version that was promoted last. The request for a rollback names this version, so that the server
    does not undo a later promotion.
    """
    known = next((each for each in client.model(name)["aliases"] if each["name"] == alias), None)
    if known is None:
        raise NotFound(f"model {name!r} has no alias {alias!r}", hint=f"octet models {name} lists them")
    version: int = (known["canary"] or known)["version"]
    return version


def describe_alias(alias: dict[str, Any]) -> str:
    """Returns an alias as text: `stable → 3, 4 in 10 %`."""
    canary = alias["canary"]
    return f"{alias['name']} → {alias['version']}" + (
        f", {canary['version']} in {canary['percent']} %" if canary else ""
    )


def _show(output: Output, name: str, alias: dict[str, Any]) -> None:
    if output.as_json:
        output.document(alias)
        return
    before = f" (before: {', '.join(map(str, alias['previous']))})" if alias["previous"] else ""
    output.show(f"{name}  [bold]{describe_alias(alias)}[/bold]{before}")
