"""Every command, option and environment variable in the chart's containers exists in Octet."""

from __future__ import annotations

import base64
import shlex
from typing import Any

import pytest
import typer

from service.cli.app import app
from service.core.access.key import id_of
from service.core.settings import Settings, load_settings
from tests.support.chart import CASES, Object, Values, containers, of_kind, ours, rendered, variables
from tests.support.deployment import ROOT

MODEL = ROOT / "examples" / "digits_int8.tflite"
_OF_CLIENTS = {"OCTET_SERVER", "OCTET_KEY"}
# Replacements for values that only a cluster can provide.
_UNKNOWN = {
    "OCTET_DATABASE_URL": "postgresql://octet@db/octet",
    "OCTET_CLUSTER_KEY": "k" * 32,
    "OCTET_ADMIN_KEY": "octet_admin_" + "k" * 32,
    "OCTET_ADVERTISE": "10.1.2.3:8080",
}


def check(arguments: list[str]) -> None:
    """Raises an error if the command line does not accept the arguments."""
    name, command = "octet", typer.main.get_command(app)
    while hasattr(command, "commands") and arguments and arguments[0] in command.commands:
        name = arguments.pop(0)
        command = command.commands[name]
    command.make_context(name, arguments)


def test_all_arguments_are_valid(objects: list[Object]) -> None:
    for _, container in ours(objects):
        check(list(container["args"]))


def test_every_role_exists(objects: list[Object]) -> None:
    assert {container["args"][0] for _, container in ours(objects)} == {"api", "compile-worker", "worker"}


def test_the_jobs_call_commands_that_exist(objects: list[Object]) -> None:
    scripts = [
        container["args"][0] for _, container in containers(objects) if container.get("command", [""])[0] == "sh"
    ]
    lines = [line.strip() for script in scripts for line in script.splitlines()]
    commands = [line.removeprefix("if ").split(" >")[0].split("; then")[0] for line in lines if "octet " in line]
    assert {shlex.split(command)[1] for command in commands} == {"push", "predict", "rm"}
    known = {
        "$file": str(MODEL),
        "$target": "x86-64-v3",
        "/files/digits_int8.tflite": str(MODEL),
        "/files/2.png": str(ROOT / "examples" / "digits" / "2.png"),
    }
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "octet"
        check([known.get(argument, argument) for argument in arguments])


def test_every_variable_is_a_setting_of_its_type(objects: list[Object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, container in ours(objects):
        with monkeypatch.context() as patch:
            found = {key: each for key, each in variables(container).items() if key.startswith("OCTET_")}
            assert {key.removeprefix("OCTET_").lower() for key in found} <= Settings.model_fields.keys(), name
            for key, each in found.items():
                patch.setenv(key, _UNKNOWN.get(key) or each["value"])
            load_settings()  # raises an error if a value has the wrong type


def test_clients_have_the_variables_that_clients_read(objects: list[Object]) -> None:
    clients = [container for _, container in containers(objects) if container.get("command", [""])[0] == "sh"]
    assert clients
    for container in clients:
        assert {key for key in variables(container) if key.startswith("OCTET_")} == _OF_CLIENTS


def test_an_api_is_addressed_by_the_name_of_its_service(objects: list[Object]) -> None:
    services = {each["metadata"]["name"] for each in of_kind(objects, "Service")}
    for _, container in containers(objects):
        url: str = variables(container).get("OCTET_SERVER", {}).get("value", "")
        if url:
            scheme, _, rest = url.partition("://")
            name, _, port = rest.partition(":")
            assert (name in services, port) == (True, "8080")
            assert (scheme == "https") == ("SSL_CERT_FILE" in variables(container))


def test_a_pools_own_settings_take_precedence() -> None:
    values = Values(
        text="{config: {threads: 1, log_format: text}, pools: [{name: a, target: x86-64-v3, config: {threads: 3, "
        "card_memory_bytes: 17179869184, models: {m: {threads: 2}}}, resources: {limits: {memory: 1Gi}}}]}"
    )
    found = {name.split("/")[1]: variables(container) for name, container in ours(rendered(values))}
    assert found["rel-octet-a"]["OCTET_THREADS"]["value"] == "3"
    assert found["rel-octet-a"]["OCTET_CARD_MEMORY_BYTES"]["value"] == "17179869184"
    assert found["rel-octet-a"]["OCTET_MODELS"]["value"] == '{"m":{"threads":2}}'
    assert found["rel-octet-a"]["OCTET_LOG_FORMAT"]["value"] == "text"
    assert found["rel-octet"]["OCTET_THREADS"]["value"] == "1"


def test_generated_keys_are_valid() -> None:
    secrets = {each["metadata"]["name"]: each["data"] for each in of_kind(rendered(CASES["defaults"]), "Secret")}
    keys: dict[str, Any] = {name: base64.b64decode(text) for name, text in secrets["rel-octet-keys"].items()}
    assert id_of(keys["admin-key"]) == "admin"
    load_settings({"cluster_key": keys["cluster-key"].decode()})
    database = {name: base64.b64decode(text).decode() for name, text in secrets["rel-octet-postgresql"].items()}
    assert database["url"] == f"postgresql://octet:{database['password']}@rel-octet-postgresql:5432/octet"
