"""Compression of answers to predict requests, for clients that ask for it.

Every client of gRPC accepts compressed answers without having been asked whether it wants them, and the library says of
requests neither whether they were compressed nor what their clients accept. So who wants them says it, by the word of
HTTP: the metadata `accept-encoding`.
"""

from __future__ import annotations

from typing import Any

from grpc import Compression
from grpc.aio import ServicerContext

from service.api.oip.coding import WORTH_BYTES, preferred

_ALGORITHMS = {"gzip": Compression.Gzip, "deflate": Compression.Deflate}


async def compress_if_asked(context: ServicerContext) -> None:
    """Has the answers of a call compressed, if its client asks for it. To be called before the first."""
    accepted = next((value for name, value in context.invocation_metadata() or () if name == "accept-encoding"), None)
    if accepted and (coding := preferred(str(accepted).encode())):
        context.set_compression(_ALGORITHMS[coding])
        await context.send_initial_metadata(())  # what goes together with the one answer of a call does not say it


def serialized(answer: Any, context: ServicerContext) -> bytes:
    """An answer of a call as bytes; those that are not worth it go as they are."""
    message = bytes(answer.SerializeToString())
    if len(message) < WORTH_BYTES:
        context.disable_next_message_compression()
    return message
