"""`octet explain`: shows the kernel of each layer of a compiled model, and its speed relative to the machine's peak."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from service.cli.commands.local.inspect import show_graph
from service.cli.commands.local.passes import PassesOption, show_passes
from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import (
    ArtifactOption,
    DialectOption,
    FolderOrModel,
    JsonOption,
    KeyOption,
    NumericsOption,
    SecondsOption,
    ServerOption,
    TargetOption,
    UnsandboxedOption,
)
from service.cli.output import Output, reporting
from service.cli.quantities import count, duration
from service.cli.tables import Table, number, text, whole
from service.core.artifacts.explanation import GENERATED, TITLES
from service.core.digest import Digest, parse_digest
from service.core.errors import NotFound

if TYPE_CHECKING:
    from service.cache import OciLayout
    from service.cli.client import Client
    from service.core.artifacts.explanation import Explanation, Layer

_RATES = (number("MAC", leave=2), number("time"), number("GMAC/s", leave=1), number("of peak", leave=4))
_GENERATED = ("none", TITLES[GENERATED])


def explain(
    model: FolderOrModel,
    artifact: ArtifactOption = None,
    threads: Annotated[
        int, typer.Option("--threads", min=0, help="Threads per call, each on its own core; 0: all cores.")
    ] = 1,
    seconds: SecondsOption = 1.0,
    attach: Annotated[
        bool,
        typer.Option("--attach", help="Store the times in the folder, so that a server that serves it shows them."),
    ] = False,
    graph: Annotated[
        bool, typer.Option("--graph", help="Print the graph of a model file, with the quantized types.")
    ] = False,
    passes: PassesOption = None,
    target: TargetOption = "host",
    numerics: NumericsOption = None,
    dialect: DialectOption = None,
    server: ServerOption = None,
    key: KeyOption = None,
    unsandboxed: UnsandboxedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show each layer's kernel, its time on this machine, and why a layer has no kernel."""
    from service.cli.artifacts import artifact_of, folder_of

    with reporting(as_json) as output:
        if passes is not None:
            show_passes(output, Path(model), passes, target, numerics, as_json)
            return
        if graph:
            show_graph(output, Path(model), as_json)
            return
        folder, named = folder_of(model), parse_digest(artifact) if artifact else None
        if folder is not None:
            from service.cache import OciLayout

            digest, explanation = measure(
                OciLayout.open(folder), named, threads, seconds, attach=attach, unsandboxed=unsandboxed
            )
        else:
            with connect(server, key) as client:
                digest, explanation = explain_served(
                    client, named or artifact_of(client, model), threads, seconds, unsandboxed
                )
        if as_json:
            output.document({"artifact": digest, **explanation.to_json()})
        else:
            show(output, digest, explanation)


def measure(
    layout: OciLayout,
    digest: Digest | None,
    threads: int,
    seconds: float,
    *,
    attach: bool = False,
    unsandboxed: bool = False,
) -> tuple[Digest, Explanation]:
    """Profiles an artifact, by default the only one, in a separate process.

    An artifact for another machine is not measured, unless its times are to be attached.

    Raises:
        NotFound: the artifact has no coverage report, which describes its layers.
        OctetError: as `runtime.load`.
    """
    from service.compiler.children.locked import LockedArtifact
    from service.core.artifacts.artifact import Report, only_artifact
    from service.core.artifacts.explanation import build_explanation
    from service.core.target import detect_host, parse_target
    from service.runtime.stored import StoredArtifact
    from service.runtime.trust import Trust

    digest = digest or only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())
    target = parse_target(StoredArtifact.read(layout, digest, Trust.of(load_checked())).config.target)
    coverage = layout.attached(digest, Report.COVERAGE)
    if coverage is None:
        raise NotFound(f"no coverage report is attached to {digest}", hint="compile the model again")
    described = json.loads(coverage)
    if not attach and not target.runs_on(detect_host()):
        return digest, build_explanation(described)
    locked = LockedArtifact.read(layout, digest, load_checked(), unsandboxed=unsandboxed)
    taken = locked.explain(threads, seconds, described.get("kernels", {}).get("peak")).to_json()
    if attach:
        layout.attach(digest, Report.PROFILE, json.dumps(taken).encode())
    return digest, build_explanation(described, taken)


def explain_served(
    client: Client, digest: Digest, threads: int, seconds: float, unsandboxed: bool
) -> tuple[Digest, Explanation]:
    """Explains an artifact on the server with the times attached to it. Measures the artifact here if no times for this
    number of threads are attached.
    """
    from service.cli.artifacts import fetched
    from service.core.artifacts.explanation import build_explanation

    profile = client.report(digest, "profile")
    if profile is None or profile["threads"] != threads:
        with fetched(client, digest) as layout:
            return measure(layout, digest, threads, seconds, unsandboxed=unsandboxed)
    coverage = client.report(digest, "coverage")
    if coverage is None:
        raise NotFound(f"no coverage report is attached to {digest}", hint="push the model again")
    return digest, build_explanation(coverage, profile)


def show(output: Output, digest: Digest, explanation: Explanation) -> None:
    """Shows the layers in order, then totals by kernel family and by type of code."""
    output.show(Text(digest, style="bold"), Text(_measured_by(explanation), style="dim"))
    table = Table(text("layer"), text("operators", leave=3), whole("kernel"), *_RATES, text("how", leave=5))
    for layer in explanation.layers:
        for row, style in _rows(explanation, layer):
            table.add(*row, style=style)
    families = _totals(explanation, "kernel", explanation.families())
    output.show(table, "", families, "", _kinds(explanation), "", *_notes(explanation))


def _measured_by(explanation: Explanation) -> str:
    profile, peak = explanation.profile, explanation.peak_macs_per_s
    if profile is None:
        return "not measured: it is for another type of machine"
    parts = [profile["machine"] or "this machine", _counted(profile["threads"], "thread")]
    parts += [f"peak {peak / 1e9:.0f} GMAC/s"] if peak else []
    return ", ".join([*parts, _counted(profile["rounds"], "round")])


def _rows(explanation: Explanation, layer: Layer) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the row of a layer. If the layer is several functions of generated code, a row for each follows."""
    numbers = _numbers(explanation, layer.macs, layer.seconds)
    if layer.kernel is not None:
        yield (_short(layer.name), layer.operators, layer.kernel, *numbers, _facts(layer)), ""
        return
    why = "; ".join(dict.fromkeys(layer.reasons.values()))
    yield (_short(layer.name), layer.operators or "generated code", "none", *numbers, why), "yellow"
    if len(layer.calls) > 1 or not layer.operators:
        for call in layer.calls:
            yield (f"  {call.symbol}", "", "", "", duration(call.seconds), "", "", ""), "dim"


def _short(name: str) -> str:
    """Shortens a tensor's name. Converters name a tensor by the full paths of all layers that were fused into it. The
    end of the first path identifies the tensor.
    """
    return "/".join(name.split(";")[0].split("/")[-2:])


def _numbers(explanation: Explanation, macs: int, seconds: float) -> tuple[str, str, str, str]:
    rates = explanation.rates(macs, seconds)
    rate, percent = rates["macs_per_s"], rates["peak_percent"]
    return (
        count(macs) if macs else "",
        duration(seconds) if seconds else "",
        f"{rate / 1e9:.1f}" if rate else "",
        f"{percent:.1f} %" if percent else "",
    )


def _facts(layer: Layer) -> str:
    """Formats a layer's facts: `1x14 pixels, 2 blocks, 3 excess groups`. Numbers have names; zeros are left out."""
    parts = []
    for name, fact in layer.facts.items():
        if isinstance(fact, str):
            parts.append(fact)
        elif fact:
            parts.append(f"{fact} {name.replace('_', ' ')}")
    return ", ".join(parts)


def _totals(explanation: Explanation, what: str, totals: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns a table with a row for each part of the layers, the longest time first, and their sum."""
    table = Table(whole(what), number("layers"), *_RATES, number("share"))
    for name, total in sorted(totals.items(), key=lambda part: -(part[1]["seconds"] or 0)):
        share = f"{total['seconds'] / explanation.seconds:.1%}" if explanation.seconds else ""
        numbers = _numbers(explanation, total["macs"], total["seconds"])
        table.add(name, str(total["layers"]), *numbers, share, style="yellow" if name in _GENERATED else "")
    numbers = _numbers(explanation, explanation.macs, explanation.seconds)
    table.add("sum", str(len(explanation.layers)), *numbers, "", style="bold")
    return table


def _kinds(explanation: Explanation) -> Table:
    return _totals(explanation, "code", {TITLES[kind]: total for kind, total in explanation.kinds().items()})


def _notes(explanation: Explanation) -> Iterator[Text]:
    kernels, profile = explanation.coverage["kernels"], explanation.profile
    if profile is not None:
        took, least = duration(profile["model_seconds"]), duration(profile["least_model_seconds"])
        yield Text(
            f"The whole model takes {took}, {least} at best. A layer's time is a median, with a call from Python."
        )
        if explanation.seconds:
            slowest = max(explanation.layers, key=lambda layer: layer.seconds)
            share = slowest.seconds / explanation.seconds
            took = duration(slowest.seconds)
            yield Text(f"The slowest layer is {_short(slowest.name)}: {took}, {share:.1%} of the time of all layers.")
    yield Text(f"{_counted(kernels['reorders'], 'reorder')} into and out of the kernels' layout.")
    if explanation.warning:
        yield Text(f"{explanation.warning[0].upper()}{explanation.warning[1:]}.", style="yellow")
    joined = kernels.get("concatenations", [])
    if joined:
        parts, in_place = (sum(each[what] for each in joined) for what in ("parts", "in_place"))
        yield Text(f"{in_place} of {_counted(parts, 'part')} of concatenations written in place, without a copy.")
    if not (kernels["layers"] or kernels["plain"]):
        yield Text("This target has no kernels of its own: all code is generated.")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
