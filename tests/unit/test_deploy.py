"""Checks that deploy/compose.yaml agrees with the Dockerfile, the settings and the command line."""

from __future__ import annotations

from typing import Any

import pytest
import typer
import yaml

from service.cli.app import app
from service.core.settings import Settings, load_settings
from tests.support.deployment import COMPOSE, ROOT, compose, services, stages

SERVICES = services()


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    return SERVICES[request.param]


def test_every_image_is_a_stage_of_the_dockerfile(service: dict[str, Any]) -> None:
    assert (COMPOSE.parent / service["build"]["context"]).resolve() == ROOT
    assert service["build"]["target"] in stages()
    assert stages()[service["build"]["target"]].entrypoint == ("octet",)


def test_every_command_exists(service: dict[str, Any]) -> None:
    name, arguments = "octet", list(service["command"])
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = arguments.pop(0)
        command = command.commands[name]
    command.make_context(name, arguments)  # raises if an argument is not known


def test_each_service_with_a_port_has_a_health_check() -> None:
    for stage in stages().values():
        assert stage.healthcheck == (("octet", "health") if stage.ports else ())
    command: Any = typer.main.get_command(app)
    command.commands["health"].make_context("health", [])


def test_every_variable_is_a_setting(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**stages()[service["build"]["target"]].environment, **service.get("environment", {})}
    ours = {name: value for name, value in variables.items() if name.startswith("OCTET_")}
    assert {name.removeprefix("OCTET_").lower() for name in ours} <= Settings.model_fields.keys()
    assert set(service.get("environment", {})) <= ours.keys()
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    load_settings()  # raises if a value has the wrong type


def test_all_services_write_only_to_the_shared_volume(service: dict[str, Any]) -> None:
    stage = stages()[service["build"]["target"]]
    assert service["read_only"] is True
    assert service["volumes"] == ["data:/data"]
    assert list(stage.volumes) == [stage.environment["OCTET_DATA_DIR"]] == ["/data"]
    assert [*compose()["volumes"]] == ["data"]


def test_published_ports_are_used_and_open_only_to_this_machine(service: dict[str, Any]) -> None:
    stage = stages()[service["build"]["target"]]
    for port in service.get("ports", []):
        address, _, inner = port.split(":")
        assert address == "127.0.0.1"
        assert stage.ports == (inner,) == (stage.environment["OCTET_PORT"],)


def test_no_two_services_publish_the_same_port() -> None:
    outer = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(outer) == len(set(outer)) == 2


def test_the_compile_worker_has_no_network() -> None:
    compiling = [service for service in SERVICES.values() if "--no-compile" not in service["command"]]
    assert [service["network_mode"] for service in compiling] == ["none"]


def test_no_service_has_privileges(service: dict[str, Any]) -> None:
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


def test_a_server_gets_enough_time_to_drain(service: dict[str, Any]) -> None:
    assert int(service["stop_grace_period"].removesuffix("s")) > load_settings().grace_s


def test_a_container_that_ends_is_restarted(service: dict[str, Any]) -> None:
    assert service["restart"] == "unless-stopped"
    assert service["init"] is True  # if the main process is killed, all other processes end with it


def test_a_release_tags_images_as_the_chart_names_them() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    steps = {each.get("id", each.get("uses")): each for each in jobs["images"]["steps"]}
    version = "${GITHUB_REF_NAME#v}"
    assert f'"version={version}"' in steps["release"]["run"]
    assert steps["docker/build-push-action@v6"]["with"]["tags"].endswith(":${{ steps.release.outputs.version }}")
    package = next(each["run"] for each in jobs["chart"]["steps"] if "helm package" in each.get("run", ""))
    assert f'--app-version "{version}"' in package
