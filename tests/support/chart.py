"""Renders the chart deploy/helm/octet with Helm, and searches the result."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from yaml import CSafeLoader  # the chart is parsed for each test, and libyaml is ten times as fast

from tests.support.deployment import ROOT
from tests.support.waiting import WORK_TIMEOUT_S

CHART = ROOT / "deploy" / "helm" / "octet"
EXAMPLES = CHART / "examples"
_REQUIRED = Path(__file__).with_name("chart_values.yaml")  # values that have no default
RELEASE = "rel"

Object = dict[str, Any]  # an object of Kubernetes


@dataclass(frozen=True)
class Values:
    """The values from which a release is rendered."""

    files: tuple[str, ...] = ()  # Names of example files.
    text: str = ""  # More values, in YAML.
    kubernetes: str = "1.31.0"
    apis: tuple[str, ...] = ("autoscaling/v2", "policy/v1")


CASES: Mapping[str, Values] = {
    "defaults": Values(),
    "pools": Values(("pools",)),
    "everything": Values(("everything",)),
    "everything on all pools": Values(("everything", "pools")),
    "hpa": Values(
        ("pools",),
        "{autoscaling: {kind: hpa}, compileWorker: {autoscaling: {minReplicas: 1, maxReplicas: 2, queueDepth: 1}}}",
    ),
    "old": Values((), "{networkPolicy: {enabled: false}, fullnameOverride: old}", "1.20.2", ()),
    "shared volume": Values(
        (),
        "{store: {volume: {accessMode: ReadWriteMany, storageClassName: nfs}}, api: {tls: "
        "{secretName: edge}}, postgresql: {persistence: {enabled: false}}}",
    ),
    "claimed": Values(
        (),
        "{store: {volume: {existingClaim: mine}}, serviceAccount: {create: false}, fullnameOverride: "
        "octet, models: [{name: m, source: /m/m.tflite, volume: {configMap: {name: m}}}]}",
    ),
}


def helm() -> str | None:
    """Returns the path of Helm in this environment or on the system, or None if it is not installed."""
    own = Path(sys.prefix, "bin", "helm")
    return str(own) if own.exists() else shutil.which("helm")


def run(*arguments: str | Path, values: str = "") -> subprocess.CompletedProcess[str]:
    """Runs Helm with `values` (YAML), which override all other values."""
    program = helm()
    assert program is not None
    more = ("--values", "-") if values else ()
    command = [program, *map(str, arguments), *more]
    return subprocess.run(command, input=values, capture_output=True, text=True, timeout=WORK_TIMEOUT_S)


def flags(values: Values) -> Sequence[str]:
    files = [_REQUIRED, *(EXAMPLES / f"{name}.yaml" for name in values.files)]
    found = [f"--values={file}" for file in files]
    return [*found, f"--kube-version={values.kubernetes}", *(f"--api-versions={api}" for api in values.apis)]


@cache
def _rendered(values: Values) -> str:
    done = run("template", RELEASE, CHART, "--namespace", "ns", *flags(values), values=values.text)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(values: Values) -> list[Object]:
    """Returns new copies of all objects of a release."""
    return [each for each in yaml.load_all(_rendered(values), Loader=CSafeLoader) if each]


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def name_of(each: Object) -> str:
    return f"{each['kind']}/{each['metadata']['name']}"


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Yields the name, the metadata and the spec of each pod that the objects create."""
    for each in objects:
        if each["kind"] == "Pod":
            yield name_of(each), each["metadata"], each["spec"]
        elif each["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = each["spec"]["template"]
            yield name_of(each), template["metadata"], template["spec"]


def containers(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    for name, _, spec in pods(objects):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield f"{name}/{container['name']}", container


def ours(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """Yields the containers whose entry point is `octet`."""
    for name, container in containers(objects):
        if "command" not in container and "postgresql" not in name:
            yield name, container


def component(metadata: Object) -> str:
    found: str = metadata["labels"]["app.kubernetes.io/component"]
    return found


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Returns true if a selector of Kubernetes matches `labels`. Supports `matchLabels`, and expressions with `In`."""
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "In"
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def variables(container: Object) -> dict[str, Object]:
    return {each["name"]: each for each in container.get("env", [])}
