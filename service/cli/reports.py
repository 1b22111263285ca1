"""Text renderings of an artifact's reports: the numerics report and the coverage report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from service.core.artifacts.explanation import TITLES, build_explanation, is_described, percent
from service.core.artifacts.floating import FloatGroup, group_floating
from service.core.digest import canonical_json
from service.core.errors import OctetError
from service.core.provenance.score import metrics_of
from service.core.verification.agreement import Outcome, is_different, may_serve
from service.core.verification.scoring import Metric

if TYPE_CHECKING:
    from service.cli.client import Client

REPORTS = (
    "numerics",
    "coverage",
    "profile",
    "score",
)  # parts of an artifact's URL, and members of `core.artifacts.artifact.Report`

_MOST_GROUPS = 8
_STYLES = {Outcome.EQUAL: "green", Outcome.DOCUMENTED: "green", Outcome.DIFFERENT: "bold red"}


def attached(client: Client, artifact: str) -> dict[str, Any]:
    """Returns the reports that the server has about `artifact`, by name."""
    found = {name: client.report(artifact, name) for name in REPORTS}
    return {name: report for name, report in found.items() if report}


def is_verified(reports: Mapping[str, Any]) -> bool:
    """Returns true if the artifact may be served: it was verified at its build, or its differences were accepted."""
    return may_serve(reports.get("numerics", {}))


def label(reports: Mapping[str, Any]) -> Text:
    """Returns the state of an artifact's verification in a word or two."""
    numerics = reports.get("numerics", {})
    if is_different(numerics):
        return Text("different", "bold red")
    if numerics.get("outcome") == Outcome.DIFFERENT and numerics.get("accepted"):
        return Text("different, accepted", "yellow")
    return Text("verified", "green") if may_serve(numerics) else Text("not verified", "yellow")


def summary(reports: Mapping[str, Any]) -> Text:
    """Returns the reports, each in a line or two."""
    return Text("\n").join(_lines(reports))


def _lines(reports: Mapping[str, Any]) -> Iterator[Text]:
    if numerics := reports.get("numerics"):
        yield from _witnesses(numerics)
    if score := reports.get("score"):
        yield _score(score)
    if coverage := reports.get("coverage"):
        if computes := coverage.get("computes"):
            yield _line("class", computes)
        yield _line("integers", f"{coverage['integer_percent']:.4g} % of {coverage['macs']:,} multiply-accumulates")
        yield from _time(coverage, reports.get("profile"))
        yield from _floating(coverage, reports.get("profile"))
        if inexact := coverage.get("kernels", {}).get("inexact"):
            functions = ", ".join(sorted({name for names in inexact.values() for name in names}))
            yield _line("inexact", f"a GPU's {functions} may differ from a CPU's in the last bit", "yellow")


def _score(document: Mapping[str, Any]) -> Text:
    """Returns a stored score in a line. Signatures are not checked: `octet verify` does that."""
    from service.core.provenance import opened

    try:
        statement, envelope = opened(canonical_json(document))
        predicate = json.loads(statement)["predicate"]
        data = predicate["data"]
        text = f"{metrics_text(metrics_of(predicate['metrics']))} on {data['inputs']} inputs of {data['name']}"
    except (OctetError, LookupError, TypeError, ValueError) as error:
        return _line("score", f"cannot be read: {error}", "yellow")
    return _line("score", text + ("" if envelope is None else ", signed"))


def metrics_text(metrics: Mapping[str, Metric]) -> str:
    """Returns scores with their confidence intervals in a line."""
    return ", ".join(f"{name} {each.value:.3g} ({each.low:.3g} to {each.high:.3g})" for name, each in metrics.items())


def floating_lines(groups: Sequence[FloatGroup], macs: int, seconds: float = 0.0) -> Iterator[str]:
    """Yields a phrase for each of the most expensive groups of operators that compute in float, and one for the rest.

    Args:
        macs, seconds: those of the whole model.
    """
    yield from (group.text(macs, seconds) for group in groups[:_MOST_GROUPS])
    if rest := groups[_MOST_GROUPS:]:
        yield f"{sum(group.count for group in rest)} operators of {len(rest)} other types"


def _floating(coverage: Mapping[str, Any], profile: Mapping[str, Any] | None) -> Iterator[Text]:
    """Yields the operators that compute in float, by type, with their shares of the work and of the measured time."""
    explanation = build_explanation(coverage, profile) if profile is not None and is_described(coverage) else None
    seconds = {} if explanation is None else explanation.seconds_of([each["op"] for each in coverage["floating"]])
    whole = 0.0 if explanation is None else explanation.seconds
    for text in floating_lines(group_floating(coverage["floating"], seconds), coverage["macs"], whole):
        yield _line("in float", text)


def _time(coverage: Mapping[str, Any], profile: Mapping[str, Any] | None) -> Iterator[Text]:
    """Yields how the measured time is divided between types of code; nothing if it was not measured."""
    if profile is None or not is_described(coverage):
        return
    explanation = build_explanation(coverage, profile)
    shares = [f"{percent(share)} in {TITLES[kind]}" for kind, share in explanation.shares().items() if share]
    yield _line("time", ", ".join(shares))
    if explanation.warning:
        yield _line("", explanation.warning, "yellow")


def _witnesses(numerics: Mapping[str, Any]) -> Iterator[Text]:
    if "summary" not in numerics:
        yield _line(
            "checked",
            "by an older version of Octet, whose report does not list what it compared; compile the model again",
            "yellow",
        )
        return
    if numerics["outcome"] == Outcome.NOT_CHECKED:
        yield _line("not checked", numerics["reason"], "yellow")
        return
    style = _STYLES.get(numerics["outcome"], "yellow")
    yield _line("checked", numerics["summary"].removeprefix("checked "), style)
    if numerics["reference"]:
        yield from (_line("", f"{own['title']}: {own['text']}") for own in numerics["witnesses"] if own["own"])
    if text := numerics.get("reached", {}).get("text"):
        yield _line("reached", text)
    for session in numerics["other_sessions"]:
        if session["ran"]:
            yield _line("session", f"{session['name']}, {session['note']}: {session['text']}")


def _line(label: str, text: str, style: str = "") -> Text:
    return Text.assemble(f"  {label:<12}", (text, style))
