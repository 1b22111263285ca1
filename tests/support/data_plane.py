"""The data plane over in-memory tables, and requests to it in the protocol's binary form."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import httpx
import numpy as np
import numpy.typing as npt
from fastapi import FastAPI
from grpc.aio import Channel, insecure_channel
from starlette.types import ASGIApp

from service.api import problems
from service.api.access import Access
from service.api.grpc.auto import grpc_server
from service.api.oip import InferenceTelemetry, install
from service.api.ops.metrics import Metrics
from service.api.ops.middleware import with_middleware
from service.api.ops.peers import peer_budgets
from service.api.services import Services
from service.core.build import Build
from service.core.certificate import certificate_of
from service.core.settings import Settings
from service.core.signature import datatype_of
from service.workers.inference import Registry, Scheduling
from service.workers.inference.ports import Aliases, Artifacts, Builds, Models
from tests.support.runners import affine, digits, identity
from tests.support.tables import TARGET, Tables

if TYPE_CHECKING:
    from service.api.ops.tracing import Tracing

Array = npt.NDArray[Any]
GRACE_S = 60.0  # for calls under way when a data plane stops


class DataPlane:
    """The `/v2` routes as the whole application has them: in the same context, with the same problem documents.

    Attributes:
        grpc: where the same models answer over gRPC, between the application's startup and its shutdown.
    """

    def __init__(
        self,
        builds: Builds,
        models: Models | None = None,
        artifacts: Artifacts | None = None,
        aliases: Aliases | None = None,
        scheduling: Mapping[str, Any] | None = None,
        targets: Sequence[str] = (TARGET,),
        on_lost: Callable[[Build], None] = lambda build: None,
        tracing: Tracing | None = None,
        **settings: Any,
    ) -> None:
        """`Tables` are all four of the ports; a test that has the real thing gives it instead."""
        self.metrics = Metrics()
        self.audited: list[tuple[str, Any]] = []
        self.registry = Registry(
            builds,
            models or cast(Tables, builds),
            artifacts or cast(Tables, builds),
            targets=targets,
            aliases=aliases or (builds if isinstance(builds, Tables) else None),
            scheduling=lambda model: Scheduling(**(scheduling or {"queue_size": 8})),
            observer=InferenceTelemetry(self.metrics),
            on_lost=on_lost,
            refresh_s=0.02,
        )
        api = FastAPI(lifespan=self.lifespan)
        problems.install(api)
        chosen = Settings(**{"data_dir": Path("/nonexistent"), **settings})
        services = SimpleNamespace(
            registry=self.registry,
            metrics=self.metrics,
            settings=chosen,
            access=Access(chosen),
            audit=SimpleNamespace(note=lambda action, **what: self.audited.append((action, what))),
            tracing=tracing,
            peers=peer_budgets(chosen),
        )
        self.services = api.state.services = cast(Services, services)
        self.grpc = ""
        api.router.routes.clear()
        install(api, self.services)
        api.add_middleware(with_middleware, services=self.services)
        self.app: ASGIApp = api

    @asynccontextmanager
    async def lifespan(self, app: FastAPI | None = None) -> AsyncIterator[None]:
        chosen = self.services.settings
        server = grpc_server(self.services, "127.0.0.1", chosen.grpc_port or 0, certificate_of(chosen))
        self.grpc = f"127.0.0.1:{await server.start()}"
        yield
        await server.stop(GRACE_S)
        await self.registry.close()


@asynccontextmanager
async def channel(plane: DataPlane, **options: Any) -> AsyncIterator[Channel]:
    """A gRPC channel to a data plane on the same event loop."""
    async with plane.lifespan(), insecure_channel(plane.grpc, **options) as opened:
        yield opened


@asynccontextmanager
async def connect(tables: Tables, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a data plane without a socket in between."""
    plane = DataPlane(tables, **options)
    transport = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            client.plane = plane  # type: ignore[attr-defined]
            yield client
    finally:
        await plane.registry.close()


def entry(name: str, array: Array, **members: Any) -> dict[str, Any]:
    """An entry of `inputs`, without its data."""
    return {"name": name, "datatype": datatype_of(array.dtype.name), "shape": list(array.shape), **members}


def as_json(array: Array, name: str = "x", **members: Any) -> dict[str, Any]:
    """A request whose one input is JSON; `members` replace those of the input."""
    return {"inputs": [{**entry(name, array), "data": array.reshape(-1).tolist(), **members}]}


def as_binary(
    inputs: Mapping[str, Array], request: Mapping[str, Any] | None = None, outputs: Sequence[Any] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a request whose inputs are all binary."""
    document: dict[str, Any] = {
        "inputs": [entry(name, array, parameters={"binary_data_size": array.nbytes}) for name, array in inputs.items()],
        **(request or {}),
    }
    if outputs is not None:
        document["outputs"] = outputs
    return packed(document, *(array.tobytes() for array in inputs.values()))


def packed(document: Any, *blobs: bytes) -> tuple[bytes, dict[str, str]]:
    """JSON, followed by raw tensors, and the header that says where they begin."""
    text = json.dumps(document).encode()
    return text + b"".join(blobs), {"Inference-Header-Content-Length": str(len(text))}


def sample_tables() -> Tables:
    """What the clients of the protocol are tried on: models of several inputs, outputs, versions and datatypes."""
    tables = Tables()
    tables.model("digits", digits)
    tables.built("digits", tables.push("digits"), lambda: digits(bias=1))
    tables.model("affine", affine)
    tables.model("large", lambda: identity("UINT8", 1, 224, 224, 3))
    for datatype in ("BOOL", "UINT16", "INT8", "INT16", "INT32", "INT64", "FP32"):
        tables.model(datatype.lower(), partial(identity, datatype, 1, 4))
    tables.push("unbuilt")
    return tables


def extremes(dtype: np.dtype[Any]) -> Array:
    """Four elements with both ends of the range, `[1, 4]`."""
    if dtype == np.bool_:
        return np.array([[False, True, True, False]])
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return np.array([[limits.min, limits.max, 0, 1]], dtype)


def unpacked(response: httpx.Response) -> tuple[dict[str, Any], dict[str, Array]]:
    """The JSON and the binary outputs of a response."""
    length = int(response.headers["inference-header-content-length"])
    document = json.loads(response.content[:length])
    arrays, offset = {}, length
    for output in document["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            dtype = {"UINT8": "u1", "INT8": "i1", "INT32": "<i4", "INT64": "<i8", "FP32": "<f4", "BOOL": "?"}
            data = response.content[offset : offset + size]
            arrays[output["name"]] = np.frombuffer(data, dtype[output["datatype"]]).reshape(output["shape"])
            offset += size
    assert offset == len(response.content)
    return document, arrays
