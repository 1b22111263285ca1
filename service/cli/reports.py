"""What is attached to an artifact, for people: what was proved about its outputs, and what it computes in integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from service.cli.client import Client

REPORTS = ("numerics", "coverage")  # parts of an artifact's URL, and members of `core.artifact.Report`


def attached(client: Client, artifact: str) -> dict[str, Any]:
    """The reports that the server has about `artifact`, by name."""
    found = {name: client.report(artifact, name) for name in REPORTS}
    return {name: report for name, report in found.items() if report}


def is_verified(reports: Mapping[str, Any]) -> bool:
    """Whether a machine of the artifact's target found it to compute what it should; otherwise it is not served."""
    return bool(reports.get("numerics", {}).get("verified"))


def summary(reports: Mapping[str, Any]) -> Text:
    """The reports in a line or two each."""
    return Text("\n").join(_lines(reports))


def _lines(reports: Mapping[str, Any]) -> Iterator[Text]:
    if numerics := reports.get("numerics"):
        if not numerics["verified"]:
            yield _line("not proved", numerics.get("reason", "the outputs are not the expected ones"), "bold yellow")
        for check in numerics["checks"]:
            yield _compared(check)
    if coverage := reports.get("coverage"):
        yield _line("integers", f"{coverage['integer_percent']:.4g} % of {coverage['macs']:,} multiply-accumulates")
        for operator in coverage["floating"]:
            yield _line("float", f"{operator['op']}: {operator['reason']}")


def _compared(check: Mapping[str, Any]) -> Text:
    compared = f"{check['elements']:,} values from {check['samples']} inputs"
    if check["equal_percent"] == 100.0:
        return _line("proved", f"{compared}, bit for bit equal to {check['against']}", "green")
    largest = check["largest_difference"]
    off = "another shape or type" if largest is None else f"off by at most {largest:g}"
    return _line("compared", f"{compared}, {check['equal_percent']:.4g} % equal to {check['against']}, {off}")


def _line(label: str, text: str, style: str = "") -> Text:
    return Text.assemble(f"  {label:<12}", (text, style))
