"""BentoML: one service with one worker; its endpoint receives the raw request."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.harness.home import CHECKOUT
from benchmarks.serving.peers.arguments import arguments


def main() -> None:
    given = arguments()
    command = [str(Path(sys.executable).with_name("bentoml")), "serve"]
    command += ["benchmarks.serving.peers.bento_ml_service:Raw", "--working-dir", str(CHECKOUT)]
    command += ["--host", "127.0.0.1", "--port", str(given.port)]
    quiet = {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": given.scratch}
    os.execve(command[0], command, os.environ | quiet | {"OCTET_BENCH_MODEL": json.dumps([given.runtime, given.model])})


if __name__ == "__main__":
    main()
