"""Reads `Dockerfile` and `deploy/compose.yaml`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"


@dataclass(frozen=True)
class Stage:
    """A stage of the Dockerfile. It includes everything that it inherits from other stages."""

    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()


def stages() -> dict[str, Stage]:
    """Returns the stages by name. Supports only the syntax that this project's Dockerfile uses: exec forms, and ENV
    with `=`.
    """
    found: dict[str, Stage] = {}
    name = ""
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "FROM":
            base, _, name = rest.split()
            found[name] = found.get(base, Stage())
        elif instruction == "ENV":
            added = dict(pair.split("=", 1) for pair in shlex.split(rest))
            found[name] = replace(found[name], environment={**found[name].environment, **added})
        elif instruction == "ENTRYPOINT":
            found[name] = replace(found[name], entrypoint=tuple(json.loads(rest)))
        elif instruction == "HEALTHCHECK":
            found[name] = replace(found[name], healthcheck=tuple(json.loads(rest.partition("CMD ")[2])))
        elif instruction == "VOLUME":
            found[name] = replace(found[name], volumes=(*found[name].volumes, *rest.split()))
        elif instruction == "EXPOSE":
            found[name] = replace(found[name], ports=(*found[name].ports, *rest.split()))
    return found


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return document


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found
