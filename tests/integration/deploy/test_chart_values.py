"""The chart is valid for every supported version of Kubernetes, and rejects unknown values."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import yaml

from scripts import chart as written
from tests.support import chart
from tests.support.chart import CASES, CHART, Object, Values, name_of, rendered
from tests.support.deployment import ROOT

VERSIONS = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
CUSTOM = ("monitoring.coreos.com", "keda.sh", "cert-manager.io", "gateway.networking.k8s.io", "serving.kserve.io")


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_no_errors(case: str) -> None:
    values = CASES[case]
    files = [flag for flag in chart.flags(values) if flag.startswith("--values")]
    done = chart.run("lint", "--strict", CHART, *files, f"--kube-version={values.kubernetes}", values=values.text)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "version", [VERSIONS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in VERSIONS[1:-1]), VERSIONS[-1]]
)
def test_every_field_exists_in_kubernetes(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    checked = set()
    for each in (each for name, case in CASES.items() if name != "old" for each in rendered(case)):
        text = json.dumps(each)
        if each["apiVersion"].startswith(CUSTOM) or text in checked:
            continue  # test_chart_custom.py checks these
        checked.add(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the library's own dependencies cause these warnings
            validate.validate(each, version, strict=True)


def refused(text: str, files: tuple[str, ...] = ()) -> str:
    done = chart.run("template", "r", CHART, *chart.flags(Values(files)), values=text)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{replicas: 3}", "replicas"),
        ("{api: {replica: 3}}", "replica"),
        ("{config: {threds: 3}}", "threds"),
        ("{config: {database_url: x}}", "database_url"),
        ("{pools: []}", "pools"),
        ("{pools: [{name: a, target: x86-64-v9, resources: {limits: {}}}]}", "target"),
        ("{pools: [{name: A_b, target: x86-64-v3, resources: {limits: {}}}]}", "name"),
        ("{pools: [{name: a, target: x86-64-v3}]}", "resources"),
        (
            "{pools: [{name: a, target: x86-64-v3, resources: {limits: {}}, autoscaling: {minReplicas: 0}}]}",
            "autoscaling",
        ),
        ("{models: [{name: m, source: \"/m'; rm -r /; '\"}]}", "source"),
        ("{models: [{name: 'm$(id)', source: /m}]}", "name"),
        ("{store: {url: 'file:///tmp'}}", "url"),
        ("{image: {digests: {api: sha256:12}}}", "digests"),
    ],
)
def test_invalid_values_are_rejected(text: str, says: str) -> None:
    assert says in refused(text)


def test_contradictory_values_are_rejected_with_a_reason() -> None:
    scaled = (
        "{pools: [{name: a, target: x86-64-v3, resources: {limits: {}}, "
        "autoscaling: {minReplicas: 1, maxReplicas: 2, queueDepth: 1}}]}"
    )
    assert "autoscaling.prometheus is not set" in refused(scaled)
    assert "gateway.parentRefs is empty" in refused("{gateway: {enabled: true}}")
    assert "ingress.host is not set" in refused("{ingress: {enabled: true}}")
    old = "{image: {registry: r}, autoscaling: {kind: hpa}, " + scaled[1:]
    done = chart.run("template", "r", CHART, "--kube-version=1.20.2", values=old)
    assert "no autoscaling/v2" in done.stderr


def test_a_missing_registry_is_named_with_a_remedy() -> None:
    done = chart.run("template", "r", CHART)
    assert done.returncode != 0
    assert "image.registry is not set" in done.stderr


def test_helm_prints_no_warnings() -> None:
    assert chart.run("template", "r", CHART, *chart.flags(Values())).stderr == ""


def test_the_chart_has_the_sample_model_and_a_picture() -> None:
    """The chart has copies, because Helm prints a warning for each symbolic link."""
    files = {"digits_int8.tflite": "digits_int8.tflite", "2.png": "digits/2.png"}
    for copy, original in files.items():
        assert (CHART / "files" / copy).read_bytes() == (ROOT / "examples" / original).read_bytes()


def test_a_digest_takes_precedence_over_a_tag() -> None:
    digest = "sha256:" + "0" * 64
    objects = rendered(Values(text=f"{{image: {{registry: reg.example, tag: '7', digests: {{api: '{digest}'}}}}}}"))
    images = {container["image"] for _, container in chart.ours(objects)}
    assert images == {f"reg.example/octet-api@{digest}", "reg.example/octet-compiler:7", "reg.example/octet-worker:7"}


@pytest.mark.parametrize("path", ["values.schema.json", "README.md"])
def test_pages_generated_from_the_values_are_up_to_date(path: str) -> None:
    pages = {file.name: text for file, text in written.pages()}
    assert (CHART / path).read_text() == pages[path], "make docs writes it"


def test_a_value_without_a_comment_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^b.d has no comment"):
        list(written.values("# Why.\na:\n  c: 1\nb:\n  d: 2\n"))


def test_the_documented_defaults_are_the_defaults() -> None:
    text = (CHART / "values.yaml").read_text()
    default: Any = yaml.safe_load(text)
    for path, documented, _ in written.values(text):
        value = default
        for key in path.split("."):
            value = value[key]
        assert documented is None or documented == value, path


def test_all_examples_are_rendered() -> None:
    assert {file.stem for file in chart.EXAMPLES.glob("*.yaml")} == {
        file for case in CASES.values() for file in case.files
    }


def names(objects: list[Object]) -> set[str]:
    return {name_of(each) for each in objects}


def test_optional_objects_are_absent_by_default() -> None:
    kinds = {name.split("/")[0] for name in names(rendered(CASES["defaults"]))}
    custom = {name.split("/")[0] for name in names(rendered(CASES["everything"]))} - kinds
    assert custom == {
        *("ScaledObject", "ServiceMonitor", "PrometheusRule", "Ingress", "HTTPRoute", "GRPCRoute", "Certificate"),
        *("ClusterServingRuntime", "HorizontalPodAutoscaler", "Job"),
    }
