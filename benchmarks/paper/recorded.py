"""The times of earlier contests, read from the tables of benchmarks/RESULTS.md.

Its sections `contest` and `gain` contain one run for each machine, with its day. A cell of their tables is a median; a
star marks one of which most rounds were disturbed, and bold type has no meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from benchmarks.contest.contestants import CONTESTANTS
from benchmarks.harness.kept import DATE, Table, tables_of
from benchmarks.harness.tables import PAGES, sections_of_machines
from benchmarks.models.catalog import ROWS
from benchmarks.paper.store import Measurement

PART = "speed"
FASTEST = "octet-int8"  # Octet's fastest int8 mode; the table of gains does not contain which one it is

_RUN = re.compile(r"^((\d{4}-\d\d-\d\d) \d\d:\d\d UTC); (.*), \d+ cores, target (\S+); octet (\S+),", re.MULTILINE)
_THREADS = re.compile(r"All contestants, int8, median ms, (\d+) threads? ")
_TIME = re.compile(r"\**(\d+(?:\.\d+)?)(\**)")
_INT8 = {it.title: it.name for it in CONTESTANTS if not it.is_fp32}
_GAIN = {"Octet (float32) ms": "octet-fp32", "fastest int8 mode ms": FASTEST}
_MODELS = {row.title: row.name for row in ROWS}


def measurements(document: str | None = None) -> Iterator[Measurement]:
    """Yields the times of a document like RESULTS.md, by default of RESULTS.md itself. Rows that a later run kept from
    an older one are left out.

    Raises:
        ValueError: a section with tables lacks the line that describes its run.
    """
    document = (PAGES / "RESULTS.md").read_text() if document is None else document
    for contest in sections_of_machines(document, "contest"):
        for table in tables_of(contest):
            if found := _THREADS.search(table.heading):
                yield from _times(contest, table, _INT8, found[1])
    for gain in sections_of_machines(document, "gain"):
        for table in tables_of(gain):
            yield from _times(gain, table, _GAIN, "1")


def _times(text: str, table: Table, contestants: Mapping[str, str], threads: str) -> Iterator[Measurement]:
    run = _RUN.search(text)
    if run is None:
        raise ValueError("RESULTS.md: a section lacks the line with its day, machine, target and versions")
    started_at, day, cpu, target, octet = run.groups()
    for row in table.rows:
        cells = table.cells(row)
        model = _MODELS.get(cells["model"])
        if model is None or cells.get("threads", threads) != threads or cells.get(DATE, day) != day:
            continue
        for title, contestant in contestants.items():
            time = _TIME.fullmatch(cells.get(title, ""))
            if time is None:
                continue
            # Bold type adds two asterisks on each side, and the star follows the number.
            disturbed = time[2] in ("*", "***")
            values = {"median_ms": float(time[1]), "mostly_disturbed": disturbed}
            versions = {"octet": octet} if contestant.startswith("octet") else {}
            name = (model, contestant, threads)
            yield Measurement(PART, name, values, day, started_at, f"{cpu}, {target}", versions)
