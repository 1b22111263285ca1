"""Clients that pass tensors in /dev/shm: the client libraries of Triton."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tritonclient import grpc as triton_grpc

from tests.support.plane_models import WIDE
from tests.support.plane_process import PlaneProcess

SHARING = ("--writes", "/dev/shm")
BYTES = 4 * WIDE
VALUES = np.arange(WIDE, dtype=np.int32).reshape(1, WIDE)


def address_of(triton: Any, served: PlaneProcess) -> str:
    """Returns the address of the protocol of `triton`, one of the client libraries."""
    return served.grpc if triton is triton_grpc else served.url.removeprefix("http://")


@contextmanager
def connected(triton: Any, served: PlaneProcess) -> Iterator[Any]:
    client = triton.InferenceServerClient(address_of(triton, served))
    try:
        yield client
    finally:
        client.unregister_system_shared_memory()
        client.close()
