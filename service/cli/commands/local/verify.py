"""`octet verify`: shows who built and signed an artifact, and checks that it computes the expected outputs here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from service.cli.configuration import load_checked
from service.cli.connection import connect
from service.cli.options import AcceptOption, ArtifactOption, JsonOption, KeyOption, ServerOption, UnsandboxedOption
from service.cli.output import FAILURE, reporting
from service.core.digest import Digest, canonical_json, parse_digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound, Untrusted

if TYPE_CHECKING:
    from service.cache import OciLayout
    from service.runtime.evidence import Evidence
    from service.runtime.trust import Trust

FolderOrDigest = Annotated[
    str,
    typer.Argument(
        metavar="DIR|DIGEST", help="A folder that octet compile wrote, or the digest of an artifact on the server."
    ),
]
NoRunOption = Annotated[
    bool, typer.Option("--no-run", help="Only check who built and signed it; do not load or run the artifact.")
]


def verify(
    artifact_or_folder: FolderOrDigest,
    artifact: ArtifactOption = None,
    accept_differences: AcceptOption = False,
    no_run: NoRunOption = False,
    unsandboxed: UnsandboxedOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check who built an artifact, and that the artifact computes the same outputs here as on the machine that compiled
    it.

    Exit status 3: the outputs are the same as on the machine that compiled the artifact, but differ from those of the
    artifact's reference runtime.
    """
    from service.cli.reports import label
    from service.core.verification.agreement import different_from, may_serve

    with reporting(as_json) as output, _open_layout(artifact_or_folder, artifact, server, key) as (layout, digest):
        from service.runtime.trust import Trust

        trust = Trust.of(load_checked())
        evidence = trust.evidence(layout, digest)
        if not as_json:
            output.show(_origin(evidence, asked_for=bool(trust.keys)))
        trust.require(evidence, digest)
        scored = _score(layout, digest, trust)
        if scored and not as_json:
            output.show(Text(f"  {'score':<10}{scored['text']}", "yellow" if "problem" in scored else ""))
        report = {} if no_run else _run_and_compare(layout, digest, unsandboxed, accept_differences)
        if as_json:
            output.document(
                {"artifact": digest, **report, "provenance": _provenance_document(evidence), "score": scored}
            )
        elif not no_run:
            output.show(Text.assemble(f"{digest}: ", label({"numerics": report})), report["summary"])
        if (different := different_from(report)) is not None:
            output.refuse(different)
        if not (no_run or may_serve(report)):
            raise typer.Exit(FAILURE)


@contextmanager
def _open_layout(
    given: str, artifact: str | None, server: str | None, key: str | None
) -> Iterator[tuple[OciLayout, Digest]]:
    """Opens the folder, or a copy of the server's artifact. Returns the layout, and the digest of the chosen
    artifact.
    """
    from service.cache import OciLayout
    from service.core.artifacts.artifact import only_artifact

    if given.startswith("sha256:"):
        from service.cli.artifacts import fetched

        digest = parse_digest(given)
        with connect(server, key) as client, fetched(client, digest) as layout:
            yield layout, digest
    elif Path(given).is_dir():
        layout = OciLayout.open(Path(given))
        listed = ((entry.digest, entry.artifact_type) for entry in layout.index())
        yield layout, parse_digest(artifact) if artifact else only_artifact(listed)
    else:
        raise InvalidInput(f"{given!r} is neither a folder nor a digest", hint="octet verify sha256:<64 hex digits>")


def _run_and_compare(layout: OciLayout, digest: Digest, unsandboxed: bool, accepts: bool) -> dict[str, Any]:
    """Runs the artifact and returns the numerics report, including the difference that its build found, if any."""
    from service.compiler.children.locked import LockedArtifact
    from service.core.artifacts.artifact import Report
    from service.core.verification.agreement import keep_build_difference
    from service.runtime.verification import verdict

    model = LockedArtifact.read(layout, digest, load_checked(), unsandboxed=unsandboxed)
    vectors = layout.attached_file(digest, Report.VECTORS)
    if vectors is None:
        raise NotFound(f"artifact {digest} has no expected outputs to verify it with", hint="compile the model again")
    earlier = json.loads(layout.attached(digest, Report.NUMERICS) or b"{}")
    found = model.compare(vectors, layout.attached_file(digest, Report.PROBES))
    return keep_build_difference(verdict(found), earlier, accepts=accepts)


def _score(layout: OciLayout, digest: Digest, trust: Trust) -> dict[str, Any] | None:
    """Returns the attached score and who signed it; or the problem with it. None if there is none."""
    from service.cli.reports import metrics_text
    from service.runtime.scores import attached_score

    try:
        found = attached_score(layout, digest, trust.keys)
    except (InvalidInput, Untrusted, CorruptBlob) as error:
        return {"problem": error.message, "text": error.message}
    if found is None:
        return None
    score, key = found.score, found.key
    signed = "not signed"
    if key is not None:
        signed = f"signed by {key.name}"
    elif found.claimed:
        signed = "its signature was not checked: OCTET_TRUSTED_KEYS is not set"
    return {
        "text": f"{metrics_text(score.metrics)} on {score.inputs} inputs of {score.data}, {signed}",
        "metrics": {name: metric.to_json() for name, metric in score.metrics.items()},
        "data": score.data,
        "data_digest": score.data_digest,
        "inputs": score.inputs,
        "reference": score.reference or None,
        "evaluator": score.evaluator,
        "finished_at": score.finished_at,
        "signed_by": key and {"name": key.name, "key": key.id},
    }


def _provenance_document(evidence: Evidence) -> dict[str, Any] | None:
    provenance = evidence.provenance
    if provenance is None:
        return None
    return {
        "inputs": provenance.inputs.to_json(),
        "tuning_log": provenance.tuning_log,
        "builder": provenance.builder,
        "builder_version": provenance.builder_version,
        "finished_at": provenance.finished_at,
        "signed_by": evidence.key and {"name": evidence.key.name, "key": evidence.key.id},
        "claimed_keys": list(evidence.claimed),
    }


def _origin(evidence: Evidence, asked_for: bool) -> Text:

    return Text("\n").join(
        Text.assemble(f"  {label:<10}", (text, style)) for label, text, style in _lines(evidence, asked_for)
    )


def _lines(evidence: Evidence, asked_for: bool) -> Iterator[tuple[str, str, str]]:
    provenance = evidence.provenance
    if provenance is None:
        yield "built", f"unknown: {evidence.problem}", "yellow"
        return
    inputs = provenance.inputs
    tools = (f"{name} {version}" for name, version in inputs.toolchain.items() if name != "passes")
    yield "builder", f"{provenance.builder}, octet {provenance.builder_version}, {provenance.finished_at}", ""
    yield "model", inputs.source, ""
    yield "for", f"{inputs.target}, {inputs.numerics}", ""
    if inputs.options:
        yield "options", canonical_json(inputs.options).decode(), ""
    yield "tools", ", ".join(tools), ""
    if provenance.tuning_log:
        yield "tuned", f"log {provenance.tuning_log}", ""
    if evidence.key is not None:
        yield "signed", f"by {evidence.key.name}, key {evidence.key.id}", "green"
    elif evidence.claimed and not asked_for:
        yield "signed", "not checked: OCTET_TRUSTED_KEYS is not set", "yellow"
    else:
        yield "signed", "no" if not evidence.claimed else evidence.problem, "yellow"
