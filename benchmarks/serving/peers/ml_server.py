"""MLServer with a custom runtime that computes in its own process (no parallel workers, which cost a copy and a hop).

Its v2 REST supports only JSON, not binary tensors. The raw body is therefore received by a custom handler, which skips
the parsing of JSON: the figure is better than what MLServer's users get over v2.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.harness.machine import free_port
from benchmarks.serving.peers.arguments import Arguments, arguments

_MODEL_VARIABLE = "OCTET_BENCH_MODEL"


def main() -> None:
    given = arguments()
    _write_settings(given)
    command = [str(Path(sys.executable).with_name("mlserver")), "start", given.scratch]
    os.execve(command[0], command, os.environ | {_MODEL_VARIABLE: json.dumps([given.runtime, given.model])})


def _write_settings(given: Arguments) -> None:
    folder = Path(given.scratch)
    server = {
        "host": "127.0.0.1",
        "http_port": given.port,
        "grpc_port": free_port(),
        "metrics_endpoint": None,
        "parallel_workers": 0,
        "use_structured_logging": False,
    }
    model = {"name": "image", "implementation": "benchmarks.serving.peers.ml_server_runtime.Raw"}
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))


if __name__ == "__main__":
    main()
