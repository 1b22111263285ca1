"""What the server and its models are, and whether they are ready: the small endpoints of the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import JSONResponse

from service import __version__
from service.api.v2.address import model_and_version
from service.core.errors import NotReady
from service.core.signature import TensorSpec
from service.workers.inference import Registry

PLATFORM = "tvm_relax_vm"
EXTENSIONS = ("binary_tensor_data",)


class Metadata:
    """The endpoints, for one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def server(self, request: Request) -> JSONResponse:
        return JSONResponse({"name": "octet", "version": __version__, "extensions": EXTENSIONS})

    async def live(self, request: Request) -> JSONResponse:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> JSONResponse:
        """Whether requests are welcome. No model has to be loaded for that: `model_ready` says which are."""
        if not self._registry.is_ready:
            raise NotReady("the server is shutting down")
        return JSONResponse({"ready": True})

    async def model(self, request: Request) -> JSONResponse:
        name, version = model_and_version(request.scope)
        served = await self._registry.acquire(name, version)
        try:
            inputs, outputs = _specs(served.signature.inputs), _specs(served.signature.outputs)
        finally:
            served.release()
        versions = [str(number) for number in await self._registry.versions(name)]
        return JSONResponse(
            {"name": name, "versions": versions, "platform": PLATFORM, "inputs": inputs, "outputs": outputs}
        )

    async def model_ready(self, request: Request) -> JSONResponse:
        """Loads the model if it is not: ready means that the next request finds it warm."""
        name, version = model_and_version(request.scope)
        served = await self._registry.acquire(name, version)
        served.release()
        return JSONResponse({"name": name, "ready": True})


def _specs(specs: Iterable[TensorSpec]) -> list[dict[str, object]]:
    return [_described(spec) for spec in specs]


def _described(spec: TensorSpec) -> dict[str, object]:
    """As the protocol says; what a quantized tensor stands for is in `parameters`, as MLServer extends it."""
    described: dict[str, object] = {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}
    if spec.quantization:
        described["parameters"] = {"scale": spec.quantization.scale, "zero_point": spec.quantization.zero_point}
    return described
