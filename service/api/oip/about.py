"""Server and model metadata of the protocol, as the JSON documents of its HTTP form.

The gRPC form has the same members under the same names, so `service.api.grpc` sends these documents too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from service import __version__
from service.api.ops.metrics import Metrics
from service.core.errors import NotFound, NotReady
from service.core.signature import TensorSpec
from service.workers.inference import ModelState, Reference, Registry, Scheduling

PLATFORM = "tvm_relax_vm"
EXTENSIONS = (
    *("binary_tensor_data", "classification", "model_configuration", "model_repository", "sequence"),
    "statistics",
)

Members = dict[str, Any]


class About:
    """Answers from one registry. A version of None is the one for requests that name none, or, where documented, all
    versions.
    """

    def __init__(self, registry: Registry, metrics: Metrics) -> None:
        self._registry, self._metrics, self._statistics = registry, metrics, metrics.statistics

    def server(self) -> Members:
        return {"name": "octet", "version": __version__, "extensions": list(EXTENSIONS)}

    def live(self) -> Members:
        return {"live": True}

    def ready(self) -> Members:
        """Whether requests are welcome. No model has to be loaded for that: `model_ready` says which are.

        Raises:
            NotReady: the server is starting or shutting down.
        """
        if unready := self._registry.unready:
            raise NotReady(unready)
        return {"ready": True}

    async def model(self, name: str, version: Reference) -> Members:
        """Inputs and outputs. Raises `NotFound`, `NotReady`."""
        served = await self._registry.acquire(name, version)
        try:
            inputs, outputs = _specs(served.signature.inputs), _specs(served.signature.outputs)
            known = served.metadata.to_json()
        finally:
            served.release()
        versions = [str(number) for number in await self._registry.versions(name)]
        about = {"name": name, "versions": versions, "platform": PLATFORM, "inputs": inputs, "outputs": outputs}
        return about | ({"parameters": known} if known else {})

    async def model_ready(self, name: str, version: Reference) -> Members:
        """Loads the model if it is not: ready means that the next request finds it warm. Raises as `model`."""
        served = await self._registry.acquire(name, version)
        served.release()
        return {"name": name, "ready": True}

    async def config(self, name: str, version: Reference) -> Members:
        """The model in the form of Triton's ModelConfig, where a batch is no part of `dims`. Raises as `model`."""
        served = await self._registry.acquire(name, version)
        try:
            signature, batch = served.signature, max(served.batches, default=0)
            scheduling = _scheduled(served.scheduling, batch)
        finally:
            served.release()
        return {
            "name": name,
            "platform": PLATFORM,
            "backend": "octet",
            "max_batch_size": batch,
            "input": _configured(signature.inputs, batch > 0),
            "output": _configured(signature.outputs, batch > 0),
            **scheduling,
        }

    async def statistics(self, name: str | None = None, version: Reference = None) -> Members:
        """Statistics of all versions of the model, or of all models. Raises `NotFound`."""
        self._metrics.gather()
        if name is None:
            ready = {(each.model, each.version) for each in await self._registry.index() if _is_ready(each.state)}
            wanted = ready | self._statistics.known()
        else:
            wanted = {(name, number) for number in await self._registry.versions(name, version)}
            if not wanted:
                raise NotFound(f"there is no such version of model {name!r} that runs here")
        stats = [
            {"name": model, "version": str(number), **self._statistics.told(model, number).to_json()}
            for model, number in sorted(wanted)
        ]
        return {"model_stats": stats}

    async def index(self, ready: bool = False) -> list[Members]:
        """Every version of every model; or those that are ready."""
        return [
            {"name": each.model, "version": str(each.version), "state": each.state.value, "reason": each.reason}
            for each in await self._registry.index()
            if _is_ready(each.state) or not ready
        ]


def _is_ready(state: ModelState) -> bool:
    return state is ModelState.READY


def _specs(specs: Iterable[TensorSpec]) -> list[Members]:
    return [_described(spec) for spec in specs]


def _described(spec: TensorSpec) -> Members:
    """As the protocol says; what a quantized tensor stands for is in `parameters`, as MLServer extends it."""
    described: Members = {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}
    if spec.quantization:
        described["parameters"] = {"scale": spec.quantization.scale, "zero_point": spec.quantization.zero_point}
    return described


def _configured(specs: Sequence[TensorSpec], batched: bool) -> list[Members]:
    first = 1 if batched else 0
    return [
        {"name": spec.name, "data_type": f"TYPE_{spec.datatype}", "dims": list(spec.shape[first:])} for spec in specs
    ]


def _scheduled(scheduling: Scheduling, batch: int) -> Members:
    """The queue in Triton's form. Times are in microseconds; 0 stands for no limit."""
    return {
        "instance_group": [{"name": "cpu", "kind": "KIND_CPU", "count": scheduling.instances}],
        "dynamic_batching": {
            "preferred_batch_size": [min(scheduling.max_batch or batch, batch)] if batch else [],
            "max_queue_delay_microseconds": round(1e6 * scheduling.max_delay_s),
            "priority_levels": scheduling.priority_levels,
            "default_priority_level": scheduling.level_of(0),
            "default_queue_policy": {
                "timeout_action": "REJECT",
                "default_timeout_microseconds": round(1e6 * (scheduling.timeout_s or 0)),
                "allow_timeout_override": True,
                "max_queue_size": scheduling.queue_size,
            },
        },
        "parameters": {"threads": {"string_value": str(scheduling.threads)}},
    }
