"""The chart's objects are consistent with each other, and every container is confined."""

from __future__ import annotations

from typing import Any

import pytest

from service.api.oip.document import PATHS
from service.core.settings import load_settings
from tests.support.chart import (
    CASES,
    Object,
    component,
    containers,
    name_of,
    of_kind,
    ours,
    pods,
    rendered,
    selects,
    variables,
)

# Objects to which the cases refer, but which they do not create.
REFERRED = {
    "Secret": {"octet-bucket", "octet-database", "octet-keys", "edge", "registry"},
    "ConfigMap": {"m"},
    "PersistentVolumeClaim": {"mine", "models"},
    "ServiceAccount": {"octet"},
}


def names_of(objects: list[Object], kind: str) -> set[str]:
    names = {each["metadata"]["name"] for each in of_kind(objects, kind)} | REFERRED[kind]
    if kind == "Secret":
        names |= {each["spec"]["secretName"] for each in of_kind(objects, "Certificate")}
    return names


def test_no_two_objects_have_the_same_name(objects: list[Object]) -> None:
    names = [(each["apiVersion"], name_of(each)) for each in objects]
    assert len(names) == len(set(names))


def test_a_workload_selects_its_own_pods_and_no_others(objects: list[Object]) -> None:
    labels = {name: metadata["labels"] for name, metadata, _ in pods(objects)}
    for each in of_kind(objects, "Deployment", "StatefulSet"):
        selected = [name for name, found in labels.items() if selects(each["spec"]["selector"], found)]
        assert selected == [name_of(each)]


def test_services_and_budgets_belong_to_one_workload_each(objects: list[Object]) -> None:
    for each in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector = each["spec"]["selector"]
        selector = {"matchLabels": selector} if each["kind"] == "Service" else selector
        selected = [name for name, metadata, _ in pods(objects) if selects(selector, metadata["labels"])]
        assert [name.split("/")[1] for name in selected] == [each["metadata"]["name"]]


def test_pods_of_one_workload_are_spread_over_nodes(objects: list[Object]) -> None:
    """If all pods of a workload were on one node, the failure of this node would stop all of them."""
    for each in of_kind(objects, "Deployment"):
        constraints = each["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert {found["topologyKey"] for found in constraints} == {"kubernetes.io/hostname"}
        assert all(found["labelSelector"] == each["spec"]["selector"] for found in constraints)


def test_every_pool_has_a_deployment_a_service_and_a_budget(objects: list[Object]) -> None:
    kinds = ("Deployment", "Service", "PodDisruptionBudget")
    found = {kind: {each["metadata"]["labels"].get("octet/pool") for each in of_kind(objects, kind)} for kind in kinds}
    assert found["Deployment"] == found["Service"] == found["PodDisruptionBudget"] > {None}


def test_every_named_port_exists(objects: list[Object]) -> None:
    ports = {
        name: {port["name"] for container in spec["containers"] for port in container.get("ports", [])}
        for name, _, spec in pods(objects)
    }
    labels = {name: metadata["labels"] for name, metadata, _ in pods(objects)}
    services = {
        each["metadata"]["name"]: {port["name"] for port in each["spec"]["ports"]}
        for each in of_kind(objects, "Service")
    }
    for each in of_kind(objects, "Service"):
        selected = [name for name in labels if selects({"matchLabels": each["spec"]["selector"]}, labels[name])]
        for port in each["spec"]["ports"]:
            assert all(port["targetPort"] in ports[name] for name in selected)
    for name, container in containers(objects):
        own = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "httpGet" in container.get(probe, {}):
                assert container[probe]["httpGet"]["port"] in own, name
    for each in of_kind(objects, "NetworkPolicy"):
        selected = [name for name in labels if selects(each["spec"]["podSelector"], labels[name])]
        named = [port["port"] for rule in each["spec"].get("ingress", []) for port in rule["ports"]]
        assert all(port in ports[name] for name in selected for port in named)
    for each in of_kind(objects, "ServiceMonitor"):
        for service in of_kind(objects, "Service"):
            if selects(each["spec"]["selector"], service["metadata"]["labels"]):
                assert {end["port"] for end in each["spec"]["endpoints"]} <= services[service["metadata"]["name"]]
    for each in of_kind(objects, "Ingress"):
        for path in each["spec"]["rules"][0]["http"]["paths"]:
            assert path["backend"]["service"]["port"]["name"] in services[path["backend"]["service"]["name"]]


def test_routes_lead_to_ports_of_services(objects: list[Object]) -> None:
    ports = {
        each["metadata"]["name"]: {port["port"] for port in each["spec"]["ports"]}
        for each in of_kind(objects, "Service")
    }
    for each in of_kind(objects, "HTTPRoute", "GRPCRoute"):
        for end in each["spec"]["rules"][0]["backendRefs"]:
            assert end["port"] in ports[end["name"]]


def test_volumes_are_mounted_and_mounts_have_a_volume(objects: list[Object]) -> None:
    claims = {
        name_of(each): {claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", [])}
        for each in of_kind(objects, "StatefulSet")
    }
    for name, _, spec in pods(objects):
        volumes = {volume["name"] for volume in spec.get("volumes", [])} | claims.get(name, set())
        mounts = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", [])}
        assert mounts == volumes, name
        for container in spec["containers"]:
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(paths) == len(set(paths)), name


def test_every_referenced_object_exists(objects: list[Object]) -> None:
    for name, _, spec in pods(objects):
        assert spec["serviceAccountName"] in names_of(objects, "ServiceAccount"), name
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                assert volume["secret"]["secretName"] in names_of(objects, "Secret")
            elif "configMap" in volume:
                assert volume["configMap"]["name"] in names_of(objects, "ConfigMap")
            elif "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in names_of(objects, "PersistentVolumeClaim")
    for name, container in containers(objects):
        for variable in variables(container).values():
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                assert reference["name"] in names_of(objects, "Secret"), name
        for source in container.get("envFrom", []):
            assert source["secretRef"]["name"] in names_of(objects, "Secret"), name
    scaled = {each["metadata"]["name"] for each in of_kind(objects, "Deployment")}
    for each in of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler"):
        assert each["spec"]["scaleTargetRef"]["name"] in scaled


def test_scaled_workloads_have_no_number_of_replicas(objects: list[Object]) -> None:
    scaled = {
        each["spec"]["scaleTargetRef"]["name"] for each in of_kind(objects, "ScaledObject", "HorizontalPodAutoscaler")
    }
    for each in of_kind(objects, "Deployment"):
        assert ("replicas" in each["spec"]) == (each["metadata"]["name"] not in scaled)


def test_every_container_is_confined(objects: list[Object]) -> None:
    for name, _, spec in pods(objects):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, name
        assert pod["runAsUser"] > 0, name
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name  # otherwise, a Service called octet would set OCTET_PORT
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        assert not any("hostPath" in volume for volume in spec.get("volumes", [])), name
    for name, container in containers(objects):
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"] is True, name
        assert confined["allowPrivilegeEscalation"] is False, name
        assert confined["capabilities"] == {"drop": ["ALL"]}, name
        assert "privileged" not in confined, name
        assert "memory" in container["resources"]["limits"], name
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys(), name


def test_servers_are_probed_on_their_own_port(objects: list[Object]) -> None:
    servers = [(name, container) for name, container in ours(objects) if "compile" not in name]
    assert servers
    for name, container in servers:
        scheme = "HTTPS" if "OCTET_TLS_CERT" in variables(container) else "HTTP"
        probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")}
        assert {probe["path"] for probe in probes.values()} <= PATHS.keys(), name
        assert {probe["scheme"] for probe in probes.values()} == {scheme}, name
        assert probes["readiness"]["path"].endswith("/ready"), name
        assert probes["liveness"]["path"].endswith("/live"), name


def test_a_server_has_enough_time_to_drain(objects: list[Object]) -> None:
    for name, metadata, spec in pods(objects):
        if component(metadata) not in ("api", "worker"):
            continue
        container = spec["containers"][0]
        pause_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        grace_s = float(variables(container)["OCTET_GRACE_S"]["value"])
        # After the grace period, the supervisor gives its children 10 s more.
        assert spec["terminationGracePeriodSeconds"] >= pause_s + grace_s + 10, name
        assert load_settings({"grace_s": grace_s}).grace_s == grace_s


def test_only_http_clients_and_servers_have_the_keys(objects: list[Object]) -> None:
    for name, container in ours(objects):
        secrets = {"OCTET_CLUSTER_KEY", "OCTET_ADMIN_KEY"} & variables(container).keys()
        assert secrets == (set() if "compile" in name else {"OCTET_CLUSTER_KEY", "OCTET_ADMIN_KEY"}), name


def _peers(rule: Object, objects: list[Object]) -> set[str]:
    """Returns the components that an egress rule allows. `elsewhere` represents anything that is not a pod of the
    release.
    """
    found = set()
    for peer in rule.get("to", [{}]):
        if "podSelector" not in peer:
            found.add("elsewhere")
            continue
        found |= {
            component(metadata) for _, metadata, _ in pods(objects) if selects(peer["podSelector"], metadata["labels"])
        }
    return found


def _egress(objects: list[Object], wanted: str) -> list[Object]:
    """Returns all egress rules for the pods of a component. All other traffic is denied."""
    (labels,) = {tuple(metadata["labels"].items()) for _, metadata, _ in pods(objects) if component(metadata) == wanted}
    policies = [
        each["spec"]
        for each in of_kind(objects, "NetworkPolicy")
        if selects(each["spec"]["podSelector"], dict(labels)) and "Egress" in each["spec"]["policyTypes"]
    ]
    assert any("egress" not in policy for policy in policies)  # this policy denies everything else
    return [rule for policy in policies for rule in policy.get("egress", [])]


@pytest.mark.parametrize("case", ["defaults", "pools", "everything"])
def test_components_that_compile_untrusted_files_reach_only_dns_the_database_and_the_store(case: str) -> None:
    objects = rendered(CASES[case])
    rules = _egress(objects, "compile-worker")
    bundled = any(component(metadata) == "postgresql" for _, metadata, _ in pods(objects))
    reached = [(sorted(_peers(rule, objects)), {port["port"] for port in rule["ports"]}) for rule in rules]
    assert (["elsewhere"], {53}) in reached
    assert ((["postgresql"] if bundled else ["elsewhere"]), {5432}) in reached
    store: list[Any] = [] if bundled else [(["elsewhere"], {443})]  # without a bucket, the store is a volume
    assert len(reached) == 2 + len(store)
    assert all(each in reached for each in store)
    for rule in rules:
        for peer in rule.get("to", []):
            if "ipBlock" in peer:
                assert "169.254.0.0/16" in peer["ipBlock"]["except"]  # clouds provide credentials at this address


def test_every_component_is_denied_what_is_not_allowed(objects: list[Object]) -> None:
    policies = of_kind(objects, "NetworkPolicy")
    if not policies:
        return
    denied = [each["spec"] for each in policies if not {"ingress", "egress"} & each["spec"].keys()]
    for name, metadata, _ in pods(objects):
        assert any(selects(policy["podSelector"], metadata["labels"]) for policy in denied), name
        assert len(policies) > 1


def test_the_image_fits_the_role(objects: list[Object]) -> None:
    for name, metadata, spec in pods(objects):
        image = spec["containers"][0]["image"].rsplit("/", 1)[-1].split(":")[0]
        arguments = spec["containers"][0].get("args", [])
        target = arguments[arguments.index("--target") + 1] if "--target" in arguments else ""
        wanted = {
            "api": "octet-api",
            "compile-worker": "octet-compiler",
            "worker": "octet-worker-cuda" if target.startswith("cuda") else "octet-worker",
            "models": "octet-api",
            "test": "octet-api",
            "postgresql": "postgres",
        }[component(metadata)]
        assert image == wanted, name


def test_old_clusters_get_only_supported_fields() -> None:
    assert {each["apiVersion"] for each in of_kind(rendered(CASES["old"]), "PodDisruptionBudget")} == {"policy/v1beta1"}
    assert {each["apiVersion"] for each in of_kind(rendered(CASES["defaults"]), "PodDisruptionBudget")} == {"policy/v1"}
