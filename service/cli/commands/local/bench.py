"""`octet bench`: measures the latency of a compiled model on this machine, by number of threads."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import (
    ArtifactOption,
    FolderOrModel,
    JsonOption,
    KeyOption,
    SecondsOption,
    ServerOption,
    UnsandboxedOption,
)
from service.cli.output import Output, reporting
from service.cli.quantities import count, duration
from service.cli.tables import Table, number, text, whole
from service.core.digest import Digest, parse_digest

if TYPE_CHECKING:
    from service.cache import OciLayout

_BARS = " ▁▂▃▄▅▆▇█"
_TIMES = ("min", "p50", "p90", "p99", "max")


def bench(
    model: FolderOrModel,
    artifact: ArtifactOption = None,
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads",
            metavar="N,N…",
            help="Numbers of threads to measure with.",
            show_default="1, 2, 4 … and all the cores",
        ),
    ] = None,
    seconds: SecondsOption = 2.0,
    server: ServerOption = None,
    key: KeyOption = None,
    unsandboxed: UnsandboxedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the latency of a model on this machine, with different numbers of threads."""
    from rich.live import Live
    from rich.spinner import Spinner

    counts = counts_of(threads)
    with reporting(as_json) as output:
        from service.compiler.children.locked import LockedArtifact
        from service.core.target import machine_name

        with _layout(model, artifact, server, key) as (layout, named):
            locked, rows = LockedArtifact.read(layout, named, load_checked(), unsandboxed=unsandboxed), []
            machine = machine_name(locked.target) or "this machine"
            for count in (
                counts if locked.target.device == "cpu" else counts[:1]
            ):  # a GPU does not compute on CPU threads
                spinner = Spinner("dots", f"{count} threads …")
                # No refresh thread is started, because this process forks.
                with Live(spinner, console=output.progress, auto_refresh=False, transient=True) as live:
                    rows.append({"artifact": locked.digest, **locked.bench(count, seconds, live.refresh).to_json()})
        if as_json:
            output.document({"machine": machine, "artifact": rows[0]["artifact"], "latencies": rows})
        else:
            show(output, rows, machine)


def counts_of(threads: str | None) -> list[int]:
    """Returns the requested numbers of threads, or powers of two up to the number of cores, and that number."""
    if threads is None:
        cores = len(os.sched_getaffinity(0))
        return sorted({cores, *(1 << power for power in range(cores.bit_length()))})
    try:
        counts = [int(count) for count in threads.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"--threads {threads!r} is not a list of numbers like 1,2,4") from error
    if min(counts) < 1:
        raise typer.BadParameter(f"--threads {threads!r}: a call needs at least one thread")
    return counts


@contextmanager
def _layout(
    model: str, artifact: str | None, server: str | None, key: str | None
) -> Iterator[tuple[OciLayout, Digest | None]]:
    """Opens a folder with the artifact. Returns the layout and the artifact's digest. The digest is None if `artifact`
    does not give it.
    """
    from service.cache import OciLayout
    from service.cli.artifacts import artifact_of, fetched, folder_of

    folder, named = folder_of(model), parse_digest(artifact) if artifact else None
    if folder is not None:
        yield OciLayout.open(folder), named
        return
    with connect(server, key) as client:
        digest = named or artifact_of(client, model)
        with fetched(client, digest) as layout:
            yield layout, digest


def show(output: Output, rows: Sequence[Mapping[str, Any]], machine: str) -> None:
    table = Table(
        number("threads"),
        number("batch", leave=3),
        number("calls", leave=5),
        number("min", leave=6),
        number("p50"),
        number("p90", leave=4),
        number("p99"),
        number("max", leave=7),
        number("per second"),
        whole("min … p99", leave=2),
        text("on cores", leave=1),
    )
    for row in rows:
        times = (duration(row[f"{time}_s"]) for time in _TIMES)
        table.add(
            *(str(row["threads"]), str(row["batch"]), f"{row['calls']:,}", *times, count(row["per_s"])),
            Text(sparkline(row["histogram"]["calls"]), style="green"),
            ", ".join(map(str, row["cores"])),
        )
    output.show(Text(rows[0]["artifact"], style="bold"), Text(machine, style="dim"), table)
    note = "A call is service.runtime's run(), including input checks and output copies. Each thread has its own core."
    output.show(Text(f"\n{note} The last bar counts all longer calls.", style="dim"))


def sparkline(calls: Sequence[int]) -> str:
    """Renders a histogram in one line. Every bar of a nonzero count is visible."""
    most = max(calls, default=0) or 1
    return "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for number in calls)
