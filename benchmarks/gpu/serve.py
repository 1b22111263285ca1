"""The measured server: `python -m benchmarks.gpu.serve FOLDER` serves it as `m`, on ports that it prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from service.core.settings import load_settings
from service.workers.data_plane import alone

_QUEUE = 4096  # large enough to refuse no client


def main() -> None:
    chosen = {"auth": "off", "port": 0, "grpc_port": 0, "queue_size": _QUEUE, "queue_wait_s": 60.0}

    def print_ports(http: int, grpc: int | None) -> None:
        print(json.dumps({"http": http, "grpc": grpc}), flush=True)

    alone.serve([alone.Source("m", Path(sys.argv[1]))], load_settings(chosen), print_ports)


if __name__ == "__main__":
    main()
