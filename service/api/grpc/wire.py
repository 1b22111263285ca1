"""`ModelInfer` as the native front knows it: see `service.api.oip.front.routes.Wire`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.api.grpc.messages import response
from service.api.oip.request import InferRequest
from service.api.oip.tensors import Array
from service.workers.inference import Reference, Served

CODES = {200: "OK", 499: "CANCELLED"}  # what gRPC calls those of the front's records


class GrpcWire:
    def addresses(self, model: str, reference: Reference) -> Sequence[str]:
        """`model_name` and `model_version`, a line each: as `InferMessage::address` of service/native has it."""
        if reference is None:
            return [f"{model}\n"]
        return [f"{model}\n{reference}", f"{model}@{reference}\n"]

    def document(self, served: Served, request: InferRequest, outputs: Sequence[Array]) -> bytes | None:
        message = response(served, request, outputs)
        del message.raw_output_contents[:]
        return bytes(message.SerializeToString())

    def refusals(self, address: str) -> Mapping[str, tuple[int, bytes]]:
        return {}
