"""`octet bench`: how long a compiled model takes to answer on this machine, by threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from service.cli.artifacts import artifact_of, fetched, folder_of
from service.cli.client import Client
from service.cli.options import (
    ArtifactOption,
    FolderOrModel,
    JsonOption,
    KeyOption,
    SecondsOption,
    ServerOption,
    server_url,
)
from service.cli.output import Output, reporting
from service.cli.quantities import count, duration
from service.core.digest import parse_digest
from service.core.errors import BuildFailed, from_json

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
    one: Annotated[bool, typer.Option("--one", hidden=True)] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the latency of a model on this machine, with different numbers of threads."""
    counts = counts_of(threads)
    with reporting(as_json) as output:
        if one:  # what this command starts for each number of threads
            output.document(measured(Path(model), artifact, counts[0], seconds))
            return
        with _folder(model, artifact, server, key) as (folder, named):
            rows = []
            for threads_each in counts:
                with output.progress.status(f"{threads_each} threads …"):
                    rows.append(_in_a_process(folder, named, threads_each, seconds))
        if as_json:
            output.document({"machine": _machine(), "artifact": rows[0]["artifact"], "latencies": rows})
        else:
            show(output, rows)


def measured(folder: Path, artifact: str | None, threads: int, seconds: float) -> dict[str, Any]:
    """The distribution for one number of threads, measured in this process, which stays on their cores."""
    from service import runtime
    from service.runtime.latency import measure
    from service.runtime.threads import confined

    shared = confined(threads)
    model = runtime.load(folder, parse_digest(artifact) if artifact else None, threads=shared)
    cores = sorted(os.sched_getaffinity(0))
    latency = measure(model, seconds=seconds)
    return {"artifact": model.digest, "threads": shared.count, "cores": cores, **latency.to_json()}


def counts_of(threads: str | None) -> list[int]:
    """The numbers of threads: those asked for, or powers of two up to the number of cores, and that."""
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
def _folder(model: str, artifact: str | None, server: str | None, key: str | None) -> Iterator[tuple[Path, str | None]]:
    """A folder that holds the artifact, and its digest where that is known."""
    folder = folder_of(model)
    if folder is not None:
        yield folder, artifact
        return
    with Client(server_url(server), key) as client:
        digest = artifact or artifact_of(client, model)
        with fetched(client, parse_digest(digest)) as layout:
            yield layout.root, digest


def _in_a_process(folder: Path, artifact: str | None, threads: int, seconds: float) -> dict[str, Any]:
    """`measured`, in a process of its own: TVM's threads are made once per process.

    Raises:
        OctetError: as it says.
    """
    command = [sys.executable, "-m", "service.cli", "bench", str(folder), "--one", "--json"]
    command += ["--threads", str(threads), "--seconds", str(seconds), *(["--artifact", artifact] if artifact else [])]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    try:
        answer: dict[str, Any] = json.loads(process.stdout)
    except ValueError as error:
        raise BuildFailed(f"the measuring process ended with status {process.returncode}") from error
    if "error" in answer:
        raise from_json(answer["error"])
    return answer


def show(output: Output, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("threads", "batch", "calls", *_TIMES, "per second"):
        table.add_column(column, no_wrap=True, justify="right")
    table.add_column("min … p99", no_wrap=True)
    table.add_column("on cores", no_wrap=True)
    for row in rows:
        times = (duration(row[f"{time}_s"]) for time in _TIMES)
        table.add_row(
            *(str(row["threads"]), str(row["batch"]), f"{row['calls']:,}", *times, count(row["per_s"])),
            Text(sparkline(row["histogram"]["calls"]), style="green"),
            ", ".join(map(str, row["cores"])),
        )
    output.show(Text(rows[0]["artifact"], style="bold"), Text(_machine(), style="dim"), table)
    told = "A call is service.runtime's run(): inputs checked, outputs copied. Each thread has a core."
    output.show(Text(f"\n{told} The last bar holds all that took longer.", style="dim"))


def sparkline(calls: Sequence[int]) -> str:
    """A histogram in one line. What is not zero is seen."""
    most = max(calls, default=0) or 1
    return "".join(_BARS[-(-number * (len(_BARS) - 1) // most)] for number in calls)


def _machine() -> str:
    from service.core.target import detect_host

    return detect_host().model_name or "this machine"
