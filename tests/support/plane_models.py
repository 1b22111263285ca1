"""Models of a few lines of C, and a data plane that loads them without checking their code."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

from service.core.digest import canonical_json
from service.core.settings import Settings
from service.native import __file__ as native
from service.workers.data_plane import orders
from service.workers.data_plane.frames import frame
from tests.support import gates
from tests.support.gates import Gate
from tests.support.plane_process import PlaneProcess
from tests.support.small_artifact import CONSTANTS, COUNTING, FUNCTIONS, LENGTH, compiled, config_of

_PROGRAM = Path(native).with_name("octet-plane")
_PATIENCE_S = 60
WIDE = 4096  # number of elements in the tensors of the wide model
_SLEEPING = """
#include <stdint.h>
#include <time.h>
int32_t sleeps(void* const* operands) {
  const int32_t* in = operands[0];
  int32_t* out = operands[1];
  struct timespec pause = {in[0] / 1000, in[0] % 1000 * 1000000L};
  nanosleep(&pause, 0);
  for (int i = 0; i < 16; ++i) out[i] = 2 * in[i];
  return 0;
}
"""
_HELD = """
int32_t held(void* const* operands) {
  const int32_t* in = operands[0];
  int32_t* out = operands[1];
  if (in[0] < 0 && gate(in[0])) return 1;
  for (int i = 0; i < 16; ++i) out[i] = 2 * in[i];
  return 0;
}
"""
_WIDE = f"""
#include <stdint.h>
int32_t twice(void* const* operands) {{
  for (int i = 0; i < {WIDE}; ++i) ((int32_t*)operands[1])[i] = 2 * ((const int32_t*)operands[0])[i];
  return 0;
}}
"""
_BATCHED = """
#include <stdint.h>
#include <time.h>
int32_t twice(void* const* operands) {
  struct timespec pause = {0, 20000000};
  nanosleep(&pause, 0);
  for (int i = 0; i < 16 * SAMPLES; ++i) ((int32_t*)operands[1])[i] = 2 * ((const int32_t*)operands[0])[i];
  return 0;
}
"""
_ONE_CALL = [("input", 0), ("output", 0)]


def sleeping(folder: Path, key: int, **rules: Any) -> orders.Members:
    """Returns a model with INT32 `in0` `[1, LENGTH]` that sleeps for `in0[0]` milliseconds. `out0` is 2 * in0."""
    return _load(folder, key, "sleeping", config_of(_ONE_CALL, [("sleeps", [0, 1])]), _SLEEPING, **rules)


def held(folder: Path, key: int, gate: Gate, **rules: Any) -> orders.Members:
    """Returns a model like `sleeping`. If the first element is negative, it stops at the gate."""
    return _load(folder, key, "held", config_of(_ONE_CALL, [("held", [0, 1])]), gate.source + _HELD, **rules)


def wide(folder: Path, key: int, **rules: Any) -> orders.Members:
    """Returns a model with INT32 `in0` `[1, WIDE]`. `out0` is 2 * in0."""
    config = _sized(config_of(_ONE_CALL, [("twice", [0, 1])]), [1, WIDE])
    return _load(folder, key, "wide", config, _WIDE, **rules)


def batched(folder: Path, key: int, sizes: Sequence[int], **rules: Any) -> orders.Members:
    """Returns a model with batch sizes `sizes`, INT32 `[1, LENGTH]` per sample. A call takes 20 ms, whatever its
    size.
    """
    parts, loaded = [], orders.Members()
    for size in sizes:
        config = _sized(config_of(_ONE_CALL, [("twice", [0, 1])]), [size, LENGTH])
        source = _BATCHED.replace("SAMPLES", str(size))
        loaded = _load(folder / f"batch{size}", key, "batched", config, source, **rules)
        parts += [part | {"batch": size} for part in loaded["parts"]]
    one = _sized(config_of(_ONE_CALL, []), [1, LENGTH])["signature"]
    known = {"inputs": one["inputs"], "outputs": one["outputs"], "batches": max(sizes), "is_batched": True}
    return loaded | {"parts": parts, "signature": known}


def counting(folder: Path, key: int, **rules: Any) -> orders.Members:
    """Returns a model with state, INT32 `[1, LENGTH]`: `out0` is the sum of all `in0` of the sequence."""
    return _load(folder, key, "counting", COUNTING, FUNCTIONS, **rules)


def _sized(config: dict[str, Any], shape: list[int]) -> dict[str, Any]:
    """Returns a copy of `config` in which all tensors have the shape `shape`."""
    changed = deepcopy(config)
    for buffer in changed["plan"]["buffers"]:
        buffer[2] = 4 * prod(shape)
    for spec in (*changed["signature"]["inputs"], *changed["signature"]["outputs"]):
        spec["shape"] = shape
    return changed


def _load(folder: Path, key: int, name: str, config: dict[str, Any], source: str, **rules: Any) -> orders.Members:
    folder = folder / name
    folder.mkdir(parents=True)
    constants = folder / "constants"
    constants.write_bytes(CONSTANTS.tobytes())
    part = {
        "batch": 1,
        "artifact": "",
        "config": canonical_json(config).decode(),
        "library": str(compiled(source, folder=folder)),
        "constants": str(constants),
    }
    signature = config["signature"]
    known = {"inputs": signature["inputs"], "outputs": signature["outputs"], "keeps_state": "states" in signature}
    loaded = {"type": "load", "key": key, "model": name, "version": "1", "parts": [part], "signature": known}
    return loaded | {"instances": 1, "threads": 1, "queue_size": 64} | rules


@contextmanager
def bare_plane(
    folder: Path,
    loads: Sequence[orders.Members],
    *arguments: str,
    keys: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    peers: orders.Members | None = None,
    **settings: Any,
) -> Iterator[PlaneProcess]:
    """Starts a data plane that serves models under their names.

    Args:
        folder: the folder that it may read.
        keys: scope -> API key.
        peers: limits for clients, which replace those in the settings.
        settings: settings of the deployment, by name.
    """
    requests = [
        {"id": key.split("_")[1], "sha256": sha256(key.encode()).hexdigest(), "scopes": [scope]}
        for scope, key in (keys or {}).items()
    ]
    known = {"type": "keys", "is_asked": True, "keys": requests} if requests else orders.keys(is_required=False)
    limits = orders.configure(Settings(data_dir=folder, host=host, **settings)) | ({"peers": peers} if peers else {})
    messages = [limits, known, *loads]
    names = [orders.Named(each["model"], "", each["key"], ["1"]) for each in loads]
    memory = os.memfd_create("orders")
    os.write(memory, b"".join(map(frame, [*messages, orders.routes(names)])))
    os.lseek(memory, 0, os.SEEK_SET)
    listeners = [socket.create_server((host, 0), backlog=1024) for _ in range(2)]
    for listener in listeners:
        listener.setblocking(False)
    http, grpc = (listener.fileno() for listener in listeners)
    descriptors = {"orders": memory, "http": http, "grpc": grpc, "gates": gates.descriptor()}
    command = [str(_PROGRAM), *(text for name, each in descriptors.items() for text in (f"--{name}", str(each)))]
    process = subprocess.Popen([*command, "--reads", str(folder), *arguments], pass_fds=list(descriptors.values()))
    addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    for listener in listeners:
        listener.close()
    os.close(memory)
    try:
        yield PlaneProcess(f"http://{addresses[0]}", addresses[1], process.pid)
        process.terminate()
        assert process.wait(_PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


__all__ = ["LENGTH", "WIDE", "bare_plane", "batched", "counting", "held", "sleeping", "wide"]
