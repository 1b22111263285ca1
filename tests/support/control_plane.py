"""The whole control plane with a real database and a real store. The tests end builds in place of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from service.api.app import create_app
from service.api.assembly import assemble
from service.api.services import Services
from service.cache import Manifest, OciLayout
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    CONSTANTS_MEDIA_TYPE,
    LIBRARY_MEDIA_TYPE,
    Report,
)
from service.core.artifacts.compatibility import ABI_VERSION, CONFIG_MEDIA_TYPE, PLAN_VERSION
from service.core.builds.build import Stage
from service.core.digest import Digest, canonical_json
from service.core.errors import OctetError
from service.core.models.facts import Facts, Scheme
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.settings import Settings
from service.core.target import Host
from service.db import Claim
from service.workers.data_plane.plane import DataPlane
from tests.support.asgi import client_of
from tests.support.databases import place_database

HOST = Host("x86_64", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"]), "a CPU of the tests")
NOBODY = b"\0octet-test-nobody"  # the address of a socket on which no data plane listens
HOST_TARGET = "x86-64-v3"
MODEL = b"\x1c\x00\x00\x00TFL3" + bytes(range(100))  # the part of a model that the API reads
FACTS = Facts(
    "tflite",
    ModelSignature((TensorSpec("x", "INT8", (1, 3)),), (TensorSpec("y", "INT8", (1, 2)),)),
    {"dense": 1},
    6,
    8,
    14,
    Scheme(("int8",), ("per-axis",), symmetric=True),
    None,
)


class ControlPlane:
    """An application and a client of it."""

    def __init__(self, services: Services, client: httpx.Client) -> None:
        self.services, self.client = services, client

    def push(self, body: bytes = MODEL, name: str = "digits", **query: Any) -> httpx.Response:
        return self.client.put("/api/v1/models", params={"name": name, **query}, content=body)

    def claim(self) -> Claim:
        """Claims the oldest build, like a worker."""
        claim = self.services.builds.claim("worker", 60.0)
        assert claim is not None
        return claim

    def succeed(self) -> Digest:
        """Ends the oldest build successfully, and returns its artifact."""
        claim = self.claim()
        self.services.builds.progress(claim, Stage.CODEGEN, 0.5)
        self.services.builds.log(claim, "as good as new")
        artifact = publish(self.services.layout, claim.build.source)
        self.services.builds.finish(claim, artifact=artifact)
        return artifact

    def fail(self, error: OctetError) -> None:
        self.services.builds.finish(self.claim(), error=error)


@contextmanager
def control_plane(data_dir: Path, **settings: Any) -> Iterator[ControlPlane]:
    own = Settings(data_dir=data_dir, **settings)
    if not own.store_dir.exists() and not own.database_file.exists():
        place_database(own.database_file)
    with (
        assemble(own, HOST, DataPlane(NOBODY)) as services,
        client_of(create_app(services)) as client,
    ):
        yield ControlPlane(services, client)


_VERSIONS = {"abi_version": ABI_VERSION, "plan": {"version": PLAN_VERSION}}  # the config contains only these members


def publish(layout: OciLayout, source: Digest) -> Digest:
    """Stores an artifact with all its reports, like the pipeline. Its code cannot be run."""
    manifest = Manifest(
        ARTIFACT_TYPE,
        layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(_VERSIONS)),
        (
            layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, b"a library of " + source.encode()),
            layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, b"constants"),
        ),
        {"dev.octet.source": source},
    )
    artifact = layout.put_manifest(manifest).digest
    for report in set(Report) - {Report.SCORE}:
        data = FACTS.to_json() if report is Report.FACTS else {"verified": True}
        layout.attach(artifact, report, canonical_json(data))
    return artifact


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Checks that a response is a complete problem document, and returns the document."""
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert (response.status_code, document["status"], document["code"]) == (status, status, code)
    assert document["error"] == document["detail"] != ""
    assert document["type"] == f"urn:octet:problem:{code}"
    assert document["title"]
    assert document["instance"] == response.request.url.path
    assert document["request_id"] == response.headers["x-request-id"]
    return document
