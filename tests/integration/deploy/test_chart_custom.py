"""The chart's custom resources have the fields that their projects document.

The schemas are handwritten and cover the fields that the chart uses. Sources: KEDA 2.16 "ScaledObject specification"
and "Prometheus" scaler; prometheus-operator's API reference (v1); cert-manager's API reference (v1); the Gateway API
1.2 reference (v1); KServe 0.14's API reference (v1alpha1 ServingRuntimeSpec).
"""

from __future__ import annotations

from typing import Any

import pytest

from service.core.settings import Settings
from tests.support.chart import CASES, Object, of_kind, rendered

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_FREE: Schema = {"type": "object"}


def strict(required: str = "", **properties: Schema) -> Schema:
    """Returns the schema of an object that may have only these fields. The fields in `required` must exist."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def several(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


_DURATION: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_TRIGGER = strict(
    "type metadata",
    type={"const": "prometheus"},
    metadata=strict(
        "serverAddress query threshold",
        serverAddress=_TEXT,
        query=_TEXT,
        threshold={"type": "string", "pattern": "^[0-9.]+$"},
    ),
)
_SELECTOR = strict(
    "",
    matchLabels=_FREE,
    matchExpressions=several(
        strict("key operator values", key=_TEXT, operator={"enum": ["In", "NotIn"]}, values=several(_TEXT))
    ),
)
_KEY = strict("name key", name=_TEXT, key=_TEXT)
_ENDPOINT = strict(
    "port",
    port=_TEXT,
    path=_TEXT,
    interval=_DURATION,
    scheme={"enum": ["http", "https"]},
    tlsConfig=strict("ca", serverName=_TEXT, ca=strict("secret", secret=_KEY)),
    authorization=strict("type credentials", type=_TEXT, credentials=_KEY),
)
_RULE = strict("alert expr", alert=_TEXT, expr=_TEXT, **{"for": _DURATION}, labels=_FREE, annotations=_FREE)
_PARENTS = several(strict("name", name=_TEXT, namespace=_TEXT, sectionName=_TEXT))
_BACKENDS = several(strict("name port", name=_TEXT, port=_COUNT))
_HOSTS = several(_TEXT)
SCHEMAS: dict[tuple[str, str], Schema] = {
    ("keda.sh/v1alpha1", "ScaledObject"): strict(
        "scaleTargetRef triggers",
        scaleTargetRef=strict("name", name=_TEXT),
        minReplicaCount=_COUNT,
        maxReplicaCount=_COUNT,
        cooldownPeriod=_COUNT,
        triggers=several(_TRIGGER),
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): strict(
        "selector endpoints",
        jobLabel=_TEXT,
        targetLabels=several(_TEXT),
        selector=_SELECTOR,
        endpoints=several(_ENDPOINT),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): strict(
        "groups", groups=several(strict("name rules", name=_TEXT, rules=several(_RULE)))
    ),
    ("cert-manager.io/v1", "Certificate"): strict(
        "secretName issuerRef",
        secretName=_TEXT,
        issuerRef=strict("name", name=_TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group=_TEXT),
        dnsNames=_HOSTS,
    ),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): strict(
        "parentRefs",
        parentRefs=_PARENTS,
        hostnames=_HOSTS,
        rules=several(
            strict(
                "backendRefs",
                backendRefs=_BACKENDS,
                matches=several(
                    strict("path", path=strict("type value", type={"enum": ["Exact", "PathPrefix"]}, value=_TEXT))
                ),
            )
        ),
    ),
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): strict(
        "parentRefs",
        parentRefs=_PARENTS,
        hostnames=_HOSTS,
        rules=several(
            strict(
                "backendRefs",
                backendRefs=_BACKENDS,
                matches=several(strict("method", method=strict("service", service=_TEXT, method=_TEXT))),
            )
        ),
    ),
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): strict(
        "supportedModelFormats containers",
        supportedModelFormats=several(strict("name", name=_TEXT, version=_TEXT, autoSelect={"type": "boolean"})),
        protocolVersions=several({"enum": ["v1", "v2", "grpc-v1", "grpc-v2"]}),
        containers=several(
            strict(
                "name image",
                name=_TEXT,
                image=_TEXT,
                args=several(_TEXT),
                ports=several(_FREE),
                resources=_FREE,
                securityContext=_FREE,
            )
        ),
    ),
}


def test_custom_resources_have_known_fields(objects: list[Object]) -> None:
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema is not installed (it comes with kubernetes-validate)"
    )
    for each in objects:
        if (
            "." in each["apiVersion"] and not each["apiVersion"].split("/")[0].endswith(".k8s.io")
        ) or "gateway" in each["apiVersion"]:
            jsonschema.validate(each["spec"], SCHEMAS[each["apiVersion"], each["kind"]])


def test_some_case_creates_each_custom_resource() -> None:
    made = {(each["apiVersion"], each["kind"]) for case in CASES.values() for each in rendered(case)}
    assert SCHEMAS.keys() <= made


def test_kserve_gets_its_own_placeholder() -> None:
    (runtime,) = of_kind(rendered(CASES["everything"]), "ClusterServingRuntime")
    (container,) = runtime["spec"]["containers"]
    assert container["args"] == ["worker", "serve", "{{.Name}}=/mnt/models"]
    assert container["ports"][0]["containerPort"] == Settings.model_fields["port"].default


def test_rules_and_dashboard_equal_those_in_deploy() -> None:
    objects = rendered(CASES["everything"])
    from tests.unit.test_dashboard import DASHBOARD, RULES

    (rules,) = of_kind(objects, "PrometheusRule")
    assert rules["spec"] == RULES
    (dashboard,) = (each for each in of_kind(objects, "ConfigMap") if "dashboard" in each["metadata"]["name"])
    import json

    assert json.loads(dashboard["data"]["octet.json"]) == DASHBOARD


def test_alerts_use_the_job_name_of_prometheus() -> None:
    """The alerts select `process_start_time_seconds{job="octet"}`. The operator sets the job's name from this label of
    the Service.
    """
    objects = rendered(CASES["everything"])
    labels = {monitor["spec"]["jobLabel"] for monitor in of_kind(objects, "ServiceMonitor")}
    jobs = {each["metadata"]["labels"][label] for each in of_kind(objects, "Service") for label in labels}
    assert jobs == {"octet"}


def test_each_service_is_scraped_by_one_monitor() -> None:
    """The API and the workers have separate monitors, because only one of the two may use TLS."""
    objects = rendered(CASES["everything"])
    chosen = [each["spec"]["selector"]["matchLabels"].items() for each in of_kind(objects, "ServiceMonitor")]
    for service in of_kind(objects, "Service"):
        if "http" in {port["name"] for port in service["spec"]["ports"]}:
            assert sum(labels <= service["metadata"]["labels"].items() for labels in chosen) == 1
