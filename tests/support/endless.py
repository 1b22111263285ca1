"""Writes an artifact whose kernel never returns for one input, in the form that `octet compile` writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from service.compiler.lowering.link import link
from service.core.digest import Digest
from service.core.target import parse_target
from tests.support import gpu_artifact
from tests.support.small_artifact import LENGTH, config_of

FOREVER = 123_456_789  # the first element of the input for which the kernel never returns
_CONFIG = config_of([("input", 0), ("output", 0)], [("octet_endless", [0, 1])])
_SOURCE = f"""
#include <stdint.h>
int32_t octet_endless(void* const* operands) {{
  volatile const int32_t* in = operands[0];
  while (in[0] == {FOREVER}) {{}}
  for (int i = 0; i < {LENGTH}; ++i) ((int32_t*)operands[1])[i] = 2 * in[i] + SALT;
  return 0;
}}
"""


def write_endless(folder: Path, salt: int = 0) -> Digest:
    """Writes the artifact. Its input is INT32 `in0` `[1, LENGTH]`; `out0` is 2 * in0 + salt.

    Artifacts with different `salt` have different digests.
    """
    work = folder.parent.parent / f"work{salt}"
    for each in (folder.parent, work):
        each.mkdir(parents=True, exist_ok=True)
    compiler = [sys.executable, "-m", "ziglang", "cc", "-x", "c", "-", "-c", "-O1", "-fPIC", "-fno-addrsig"]
    source = _SOURCE.replace("SALT", str(salt)).encode()
    subprocess.run([*compiler, "-o", str(work / "endless.o")], input=source, check=True)
    link([work / "endless.o"], work / "library.so", parse_target(_CONFIG["target"]), allow_unsandboxed=True)
    return gpu_artifact.write_artifact(
        folder, work / "library.so", _CONFIG, lambda given: (2 * given.astype(np.int64) + salt).astype(np.int32)
    )


def request(first: int) -> dict[str, Any]:
    data = [first, *range(1, LENGTH)]
    return {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": data}]}


def status(client: httpx.Client, model: str, first: int = 0) -> int:
    """Sends a request and returns the status of the response, or 0 if the connection ends without a response."""
    try:
        return client.post(f"/v2/models/{model}/infer", json=request(first)).status_code
    except httpx.TransportError:
        return 0
