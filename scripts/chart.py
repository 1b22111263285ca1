"""Generates the README and values.schema.json of deploy/helm/octet from its values.yaml. With --check, only compares.

The comment above a value is its meaning, and the type of its default is its type. `_SHAPES` has types that a default
cannot show.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from service.core.settings import Settings
from service.core.target import TARGETS

CHART = Path(__file__).resolve().parent.parent / "deploy" / "helm" / "octet"

# Settings that the chart derives from other values, or that are useless in a container.
_OWN = {
    *("role", "pool", "target", "advertise", "cluster_key", "cluster_key_file", "build_targets"),
    *("cluster_ca", "cluster_tls_name"),
    *("host", "port", "grpc", "grpc_port", "data_dir", "database_url", "store_url", "grace_s"),
    *("admin_key", "tls_cert", "tls_key", "model_files"),
}
CONFIG = sorted(Settings.model_fields.keys() - _OWN)

Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FREE: Schema = {"type": "object"}
_LIST: Schema = {"type": "array"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$",
}  # used in names of Kubernetes objects
_MODEL: Schema = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,62}$"}
_TARGET: Schema = {"type": "string", "enum": [target.name for target in TARGETS]}
_CONFIG: Schema = {"type": "object", "propertyNames": {"enum": CONFIG}}
_DIGESTS: Schema = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def _scaled(**more: Schema) -> Schema:
    """Returns the schema of a range of replicas, or of an empty object, which means no autoscaling."""
    bounds = {"minReplicas": {"type": "integer", "minimum": 1}, "maxReplicas": {"type": "integer", "minimum": 1}}
    properties = bounds | more
    full = _object(tuple(properties), **properties)
    return {"anyOf": [{"type": "object", "maxProperties": 0}, full]}


_QUEUE = _scaled(queueDepth={"type": "integer", "minimum": 1})
_POOL = _object(
    ("name", "target", "resources"),
    name=_NAME,
    target=_TARGET,
    replicas=_COUNT,
    autoscaling=_QUEUE,
    image={"type": "string", "enum": ["worker", "workerCuda"]},
    config=_CONFIG,
    resources={"type": "object", "required": ["limits"]},
    nodeSelector=_FREE,
    affinity=_FREE,
    tolerations=_LIST,
    topologySpreadConstraints=_LIST,
    priorityClassName=_TEXT,
    runtimeClassName=_TEXT,
    podAnnotations=_FREE,
)
_SOURCE = _object(
    ("name", "source"),
    name=_MODEL,
    source={"type": "string", "pattern": "^(https?://[^\\s'\"]+|/[^\\s'\"]+)$"},
    sha256={"type": "string", "pattern": "^[0-9a-f]{64}$"},
    targets={"type": "array", "items": _TARGET, "minItems": 1},
    options={"type": "object", "propertyNames": {"pattern": "^[a-z]+(-[a-z]+)*$"}},
    volume=_FREE,
)
# Schemas by the path of the value.
_SHAPES: Mapping[str, Schema] = {
    "config": _CONFIG,
    "api.config": _CONFIG,
    "compileWorker.config": _CONFIG,
    "models": {"type": "array", "items": _SOURCE},
    "pools": {"type": "array", "items": _POOL, "minItems": 1},
    "api.autoscaling": _scaled(cpuPercent={"type": "integer", "minimum": 1, "maximum": 100}),
    "compileWorker.autoscaling": _QUEUE,
    "compileWorker.targets": {"type": "array", "items": _TARGET},
    "autoscaling.kind": {"type": "string", "enum": ["keda", "hpa"]},
    "test.target": {"type": "string", "enum": ["", *_TARGET["enum"]]},
    "image.digests": {"type": "object", "additionalProperties": _DIGESTS},
    "image.pullPolicy": {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
    "store.url": {"type": "string", "pattern": r"^((s3|gs|az)://[^/\s]+(/\S*)?)?$"},
    "store.volume.accessMode": {"type": "string", "enum": ["ReadWriteOnce", "ReadWriteMany"]},
    "api.service.type": {"type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
}
# Kubernetes objects, which Kubernetes validates itself.
_KUBERNETES = (
    *("resources", "cacheVolume", "networkPolicy.dns", "networkPolicy.database", "networkPolicy.store"),
    *("networkPolicy.models", "monitoring.dashboard.labels"),
)


def main() -> int:
    stale = [path for path, text in pages() if not path.exists() or path.read_text() != text]
    check = "--check" in sys.argv
    if not check:
        for path, text in pages():
            path.write_text(text)
    for path in stale:
        print(f"{path.name} of the chart {'is out of date; make docs writes it' if check else 'written'}")
    return 1 if stale and check else 0


def pages() -> Iterator[tuple[Path, str]]:
    """Yields the path and the text of each generated file."""
    text = (CHART / "values.yaml").read_text()
    head = {"$schema": "http://json-schema.org/draft-07/schema#"}
    yield CHART / "values.schema.json", json.dumps(head | schema(yaml.safe_load(text)), indent=2) + "\n"
    yield CHART / "README.md", readme(text)


def schema(default: Any, path: str = "") -> Schema:
    """Returns the schema of a value with this default. An object may have only the keys that its default has."""
    if path in _SHAPES:
        return _SHAPES[path]
    if isinstance(default, dict):
        if not default or _is_kubernetes(path):
            return _FREE
        properties = {key: schema(value, f"{path}.{key}".lstrip(".")) for key, value in default.items()}
        if not path:
            properties["global"] = _FREE  # Helm passes this to every chart
        return _object((), **properties)
    if isinstance(default, list):
        return _LIST
    if isinstance(default, bool):
        return {"type": "boolean"}
    return _COUNT if isinstance(default, int) else _TEXT


def _is_kubernetes(path: str) -> bool:
    return path.endswith(_KUBERNETES)


def readme(text: str) -> str:
    """Returns the chart's README.

    Raises:
        ValueError: neither a value nor the object that contains it has a comment.
    """
    rows = [f"| `{path}` | {_cell(default)} | {meaning} |" for path, default, meaning in values(text)]
    table = "\n".join(["| value | default | meaning |", "| --- | --- | --- |", *rows])
    return _README.format(table=table)


def values(text: str) -> Iterator[tuple[str, Any, str]]:
    """Yields the path, the default and the meaning of each value of a values.yaml, objects before their members."""
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, path: str, explained: bool) -> Iterator[tuple[str, Any, str]]:
        for key, value in node.value:
            name = f"{path}.{key.value}".lstrip(".")
            meaning = "" if node.flow_style else _comment(lines, key.start_mark.line)
            is_inner = isinstance(value, yaml.MappingNode) and value.value and not _is_leaf(name)
            if not meaning and not explained and not is_inner:
                raise ValueError(f"{name} has no comment")
            if is_inner:
                if meaning:
                    yield name, None, meaning
                yield from walk(value, name, explained or bool(meaning))
            else:
                yield name, yaml.SafeLoader("").construct_object(value, deep=True), meaning

    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from walk(root, "", False)


def _is_leaf(path: str) -> bool:
    return path in _SHAPES or _is_kubernetes(path)


def _comment(lines: list[str], line: int) -> str:
    """Returns the comment directly above a line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip()[1:].strip())
    return " ".join(found)


def _cell(default: Any) -> str:
    return "" if default is None else f"`{json.dumps(default)}`"


_README = """# Octet's chart

[How to install it](../../../docs/how-to/kubernetes.md). This page is written from `values.yaml` by `make docs`.

    helm install octet deploy/helm/octet --values my-values.yaml

`examples/pools.yaml` has pools for x86 with VNNI, x86 with AVX2, ARM and NVIDIA GPUs; `examples/everything.yaml` has
every option once. The schema refuses a value that is not in this table or has another type, and a name in `config`
that is not a [setting](../../../docs/reference/settings.md).

{table}
"""

if __name__ == "__main__":
    sys.exit(main())
