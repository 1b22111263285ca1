"""Turns each launch of the kernels' tests into an artifact of two calls, with the output that the emulation gave.

The first call fills the output with its content before the launch, because the kernel may leave bytes unchanged, and
these bytes must be equal, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu import artifacts
from benchmarks.gpu.kernels import LAUNCHES_FILE, OPERANDS
from benchmarks.harness.home import CHECKOUT
from service.cache import OciLayout
from service.compiler.kernels.cuda.gpus import Gpu
from service.core.artifacts.call_plan import Buffer, Call, Launch, Space
from service.core.target import Target
from tests.support.cuda.recording import Recorded, recorded

TESTS = "tests/unit/compiler/kernels/cuda"
COPY_SYMBOL = "octet_copy"
_THREADS = 256
# Operands are padded to whole blocks of threads.
COPY_SOURCE = f"""extern "C" __global__ void OCTET_KERNEL(const unsigned char* from, unsigned char* to) {{
  const unsigned long long at = blockIdx.x * {_THREADS}ull + threadIdx.x;
  to[at] = from[at];
}}
"""
_MOST_BYTES = 40 << 20  # size of operands and libraries, before compression


@dataclass(frozen=True)
class Kept:
    """The launches that a package contains.

    Attributes:
        others: number of distinct launches for which the package has no room.
        newer: number of launches that need a newer GPU, or one with more shared memory.
    """

    launches: Sequence[Recorded]
    others: int
    newer: int


def record(folder: Path, tests: Sequence[str]) -> None:
    """Runs the tests, and records what they launch. Raises `CalledProcessError` if one of them fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.cuda.recording", "-p", "no:cacheprovider"]
    command += [f"--record-launches={folder.absolute()}", "--hypothesis-seed=0", "-n", "auto", *tests]
    subprocess.run(command, cwd=CHECKOUT, check=True)


def chosen(folder: Path, gpu: Gpu, most_bytes: int = _MOST_BYTES) -> Kept:
    """Chooses the first launch of each kernel, then other launches, as far as they fit."""
    found = recorded(folder)
    capability = int(gpu.capability.removeprefix("sm_"))
    own = [each for each in found if each.capability <= capability and each.shared_bytes <= gpu.block_shared_bytes]
    seen: dict[str, int] = defaultdict(int)
    positions = []
    for each in own:
        positions.append((seen[each.symbol], each.test, each))
        seen[each.symbol] += 1
    kept, left = list[Recorded](), most_bytes
    for _, _, each in sorted(positions, key=lambda index: index[:2]):
        if each.size_bytes <= left:
            kept.append(each)
            left -= each.size_bytes
    return Kept(kept, len(own) - len(kept), len(found) - len(own))


def sources(launches: Iterable[Recorded]) -> dict[str, str]:
    """Returns the sources of all kernels, by name."""
    return {each.symbol: each.source.read_text() for each in launches} | {COPY_SYMBOL: COPY_SOURCE}


def put(launches: Sequence[Recorded], gpu: Gpu, target: Target, folder: Path) -> None:
    """Writes a library for each module of tests, and the files that the GPU's machine reads for each launch."""
    modules: dict[str, list[Recorded]] = defaultdict(list)
    for each in sorted(launches, key=lambda each: each.test):
        modules[_module(each)].append(each)
    (folder / OPERANDS).mkdir(parents=True)
    layout, rows = OciLayout(folder), list[dict[str, object]]()
    for module, own in modules.items():
        print(f"{module}: {len(own)} launches", flush=True)
        library = artifacts.linked(sources(own), gpu.capability, target)
        rows += [_put(each, module, layout, library, target, folder / OPERANDS) for each in own]
    (folder / LAUNCHES_FILE).write_text(json.dumps(rows, indent=1))


def _put(
    launch: Recorded, module: str, layout: OciLayout, library: bytes, target: Target, operands: Path
) -> dict[str, object]:
    last = len(launch.before) - 1
    written = [
        position
        for position in range(last + 1)
        if position == last or launch.before[position] != launch.after[position]
    ]
    sizes = [_filled(path.stat().st_size) for path in launch.before]
    inputs = [Buffer(Space.INPUT, position, size) for position, size in enumerate(sizes)]
    outputs = [Buffer(Space.OUTPUT, number, sizes[position]) for number, position in enumerate(written)]
    output_of = {position: len(inputs) + number for number, position in enumerate(written)}
    calls = [
        (Call(COPY_SYMBOL, (position, output)), Launch((sizes[position] // _THREADS, 1, 1), (_THREADS, 1, 1)))
        for position, output in output_of.items()
    ]
    own = Call(launch.symbol, tuple(output_of.get(position, position) for position in range(last + 1)))
    calls.append((own, Launch(launch.grid, launch.block, launch.shared_bytes)))
    digest = artifacts.put(layout, library, target, [*inputs, *outputs], calls)
    after = [launch.after[position] for position in written]
    for path in (*launch.before, *after):
        shutil.copy(path, operands / path.name)
    files = {"inputs": [each.name for each in launch.before], "outputs": [each.name for each in after]}
    return {"test": launch.test, "module": module, "kernel": launch.symbol, "artifact": digest, **files}


def _filled(size: int) -> int:
    return max(1, -(-size // _THREADS)) * _THREADS


def _module(launch: Recorded) -> str:
    return Path(launch.test.partition("::")[0]).stem
