"""gRPC clients: `python -m benchmarks.gpu.grpc_load CORE` has the same input and output as
`benchmarks.serving.clients.generator`.

Each client has a thread. Threads share the interpreter, so a process should run only a few clients.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_LOST = 0
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        expected = Path(order["expected"]).read_bytes()
        begin_s = time.monotonic() + order["warm_up_s"]
        end_s = begin_s + order["seconds"]
        answers: list[list[Any]] = []
        threads = [
            threading.Thread(target=_client, args=(order, expected, begin_s, end_s, answers))
            for _ in range(order["connections"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps({"answers": answers, "elapsed_s": order["seconds"]}), flush=True)


def call(host: str, port: int, request: bytes, limit_s: float) -> bytes:
    """Sends a message, and returns the bytes of the response."""
    with grpc.insecure_channel(f"{host}:{port}", _OPTIONS) as channel:
        return bytes(channel.unary_unary(_METHOD)(request, timeout=limit_s))


def _client(order: dict[str, Any], expected: bytes, begin_s: float, end_s: float, answers: list[list[Any]]) -> None:
    request = Path(order["request"]).read_bytes()
    with grpc.insecure_channel(f"{order['host']}:{order['port']}", _OPTIONS) as channel:
        infer = channel.unary_unary(_METHOD)
        while (sent_s := time.monotonic()) < end_s:
            try:
                status, right = 200, infer(request, timeout=order["patience_s"]) == expected
            except grpc.RpcError:
                status, right = _LOST, True
            now_s = time.monotonic()
            if begin_s <= now_s <= end_s:
                answers.append([sent_s - begin_s, now_s - sent_s, status, right])


if __name__ == "__main__":
    main()
