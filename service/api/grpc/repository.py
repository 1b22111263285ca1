"""The repository methods of `inference.GRPCInferenceService`, on serialized messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from service.api.grpc import inference_pb2 as pb
from service.api.oip.repository import Repository
from service.core.errors import InvalidInput, Unsupported

_SERVICE = "/inference.GRPCInferenceService/"

Message = Any  # a message of `inference_pb2`, whose classes are created at run time


class Calls:
    """Handles calls of methods, which are identified by their path."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._methods: Mapping[str, tuple[Callable[[Message], Awaitable[Message]], Message]] = {
            _SERVICE + "RepositoryIndex": (self._index, pb.RepositoryIndexRequest),
            _SERVICE + "RepositoryModelLoad": (self._load, pb.RepositoryModelLoadRequest),
            _SERVICE + "RepositoryModelUnload": (self._unload, pb.RepositoryModelUnloadRequest),
        }

    async def answer(self, path: str, message: bytes) -> bytes:
        """Returns the serialized response to a call. Raises `OctetError`."""
        if path not in self._methods:
            raise Unsupported(f"there is no method {path}")
        method, takes = self._methods[path]
        try:
            request = takes.FromString(message)
        except DecodeError as error:
            raise InvalidInput("the message cannot be parsed as a request of this method") from error
        return bytes((await method(request)).SerializeToString())

    async def _index(self, request: Message) -> Message:
        return ParseDict({"models": await self._repository.index(request.ready)}, pb.RepositoryIndexResponse())

    async def _load(self, request: Message) -> Message:
        await self._repository.load(request.model_name, _values_of(request.parameters))
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: Message) -> Message:
        await self._repository.unload(request.model_name, _values_of(request.parameters))
        return pb.RepositoryModelUnloadResponse()


def _values_of(parameters: Mapping[str, Message]) -> dict[str, Any]:
    """Returns parameters as in JSON. Leaves out parameters without a value."""
    chosen = {name: each.WhichOneof("parameter_choice") for name, each in parameters.items()}
    return {name: getattr(parameters[name], member) for name, member in chosen.items() if member}
