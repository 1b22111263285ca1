"""Calls a server with the `kserve` SDK, and prints the results as JSON.

Usage: `python kserve_session.py REST_URL GRPC_ADDRESS`. It runs in a different Python environment from the tests,
    because the SDK pins other versions of packages.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

IMAGE = (np.arange(64, dtype=np.uint8) * 4).reshape(1, 8, 8, 1)


def request_of(binary: bool) -> InferRequest:
    tensor = InferInput("image", list(IMAGE.shape), "UINT8")
    tensor.set_data_from_numpy(IMAGE, binary_data=binary)
    return InferRequest("digits", [tensor], request_id="seven")


def columns_of(response: Any) -> Any:
    return next(output for output in response.outputs if output.name == "columns").as_numpy().tolist()


async def rest(url: str) -> dict[str, Any]:
    client = InferenceRESTClient(RESTConfig(protocol="v2", verbose=False))
    results: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, "digits"),
        "unbuilt_ready": await client.is_model_ready(url, "unbuilt"),
    }
    for binary in (False, True):
        results[f"infer, binary {binary}"] = columns_of(
            await client.infer(url, request_of(binary), model_name="digits")
        )
    await client.close()
    return results


async def grpc(address: str) -> dict[str, Any]:
    client = InferenceGRPCClient(address)
    results: dict[str, Any] = {
        "live": await client.is_server_live(),
        "ready": await client.is_server_ready(),
        "model_ready": await client.is_model_ready("digits"),
        "unbuilt_ready": await client.is_model_ready("unbuilt"),
    }
    for binary in (False, True):
        results[f"infer, binary {binary}"] = columns_of(await client.infer(request_of(binary)))
    await client.close()
    return results


async def main() -> None:
    url, address = sys.argv[1:]
    print(json.dumps({"rest": await rest(url), "grpc": await grpc(address)}))


if __name__ == "__main__":
    asyncio.run(main())
