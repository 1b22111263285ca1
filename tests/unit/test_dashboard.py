"""Checks that the dashboard and the alerts use only metrics and labels that `/metrics` has."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.core.errors import BuildFailed
from tests.support.control_plane import control_plane
from tests.support.data_plane import DataPlane, as_json, connect
from tests.support.live_counts import add_counts, counts_of
from tests.support.promql import parse
from tests.support.runners import digits
from tests.support.tables import Tables

FILES = Path(__file__).parents[2] / "deploy" / "helm" / "octet" / "files"
DASHBOARD = json.loads((FILES / "octet.json").read_text())
RULES = yaml.safe_load((FILES / "octet.rules.yaml").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
_OF_A_SCRAPE = {"instance", "job"}  # Prometheus adds them
_GRAFANA = {"$model": ".*", "$__rate_interval": "5m"}

Page = dict[str, list[dict[str, str]]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Returns the labels of all samples by name, from two servers that together have every metric."""
    return samples(asyncio.run(predictions()) + builds(tmp_path_factory.mktemp("data")))


async def predictions() -> str:
    tables = Tables()
    tables.model("digits", digits)
    request = as_json(np.zeros((1, 8, 8, 1), np.uint8), "image")
    async with connect(tables) as client:
        url = "/v2/models/digits/infer"
        assert (await client.post(url, json=request)).status_code == 200
        assert (await client.post(url, json=request, headers={"Octet-Timeout-Ms": "0"})).status_code == 504
        plane: DataPlane = client.plane  # type: ignore[attr-defined]
        return await plane.scraped()


def builds(folder: Path) -> str:
    with control_plane(folder, saturation_share=0.001) as plane:
        plane.push()
        plane.succeed()
        add_counts(plane.services, "digits", counts_of(above=5, inside=95), counts_of(), dropped=1)
        plane.push()
        plane.push(target="aarch64")
        plane.fail(BuildFailed())
        return plane.client.get("/metrics").text


def samples(text: str) -> Page:
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append({**sample.labels, "instance": "here", "job": "octet"})
    return found


def check(text: str, page: Page, legend: str = "") -> None:
    """Checks that each selector of the query matches a sample, and that each label in its groups or legend exists."""
    for variable, value in _GRAFANA.items():
        text = text.replace(variable, value)
    query = parse(text)
    assert query.selectors, text
    shown = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend))
    assert not query.groups or shown <= query.groups, text
    for selector in query.selectors:
        assert selector.metric in page, selector
        labels = [each for each in page[selector.metric] if selector.matches(each)]
        assert labels, selector
        assert query.groups | shown <= labels[0].keys(), (selector, labels[0])


def targets() -> Iterator[Any]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(target, id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("target", [*targets()])
def test_a_query_of_the_dashboard_finds_existing_metrics(target: dict[str, str], page: Page) -> None:
    check(target["expr"], page, target["legendFormat"])


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in ALERTS])
def test_an_alert_uses_existing_metrics(rule: dict[str, Any], page: Page) -> None:
    check(rule["expr"], page, rule["annotations"]["summary"])
    assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize(
    "query",
    [
        "octet_request_total",
        "rate(octet_requests[5m])",
        'octet_requests_total{status="200"}',
        'octet_compute_duration_seconds_sum{phase="compute"}',
        "sum by (reason) (rate(octet_requests_total[5m]))",
        "histogram_quantile(0.5, sum by (le) (rate(octet_request_duration_seconds_sum[5m])))",
    ],
)
def test_the_check_finds_missing_metrics_and_labels(query: str, page: Page) -> None:
    with pytest.raises(AssertionError):
        check(query, page)


def test_every_documented_metric_exists_with_its_labels(page: Page) -> None:
    of_model = {"model", "version", "target"}
    wanted = {
        "octet_request_duration_seconds_bucket": {*of_model, "protocol", "code", "le"},
        "octet_requests_total": {*of_model, "protocol", "code"},
        "octet_queue_duration_seconds_bucket": {*of_model, "le"},
        "octet_compute_duration_seconds_bucket": {*of_model, "phase", "le"},
        "octet_requests_rejected_total": {"reason"},
        "octet_batch_size_bucket": {*of_model, "le"},
        "octet_queue_depth": {"model"},
        "octet_inflight_requests": {"model"},
        "octet_model_memory_bytes": set(),
        "octet_artifact_info": {*of_model, "digest", "numerics"},
        "octet_builds_total": {"target", "outcome"},
        "octet_build_duration_seconds_bucket": {"target", "stage", "le"},
        "octet_build_queue_depth": set(),
        "octet_cache_hits_total": {"tier"},
        "octet_cache_misses_total": {"tier"},
        "octet_cache_bytes": set(),
        "octet_clipped_ratio": {"model", "version", "tensor"},
        "octet_counted_requests": {"model", "version"},
        "octet_counted_requests_dropped": {"model", "version"},
    }
    found = {name: set(page[name][0]) - _OF_A_SCRAPE for name in wanted if name in page}
    assert found == wanted


def test_every_metric_is_on_the_dashboard(page: Page) -> None:
    shown = {
        re.sub("_(bucket|sum|count)$", "", selector.metric)
        for panel in PANELS
        for target in panel["targets"]
        for selector in parse(target["expr"].replace("$__rate_interval", "5m")).selectors
    }
    ours = {re.sub("_(bucket|sum|count)$", "", name) for name in page if name.startswith("octet_")}
    assert ours == {name for name in shown if name.startswith("octet_")}


def test_panels_do_not_overlap_and_use_the_chosen_data_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & taken, panel["title"]
        assert position["x"] + position["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
