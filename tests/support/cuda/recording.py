"""Records the launches of kernel tests, so that they can be repeated on a real GPU. Contains a pytest plugin, and a
reader of the recordings.

    pytest -p tests.support.cuda.recording --record-launches=FOLDER tests/unit/compiler/kernels/cuda

Each distinct launch without a fault is recorded once: the kernel's source, the launch parameters, and the bytes of the
operands before and after. If another process or another test makes the same launch, nothing is added.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.core.digest import digest_of_json
from tools.cuda_emulator import emulated_kernel

_ANY_NAME = "OCTET_KERNEL"


@dataclass(frozen=True)
class Recorded:
    """A recorded launch.

    Attributes:
        test: the test that made the launch.
        symbol: the kernel's symbol, derived from the digest of its source.
        source: the source. It names the kernel `OCTET_KERNEL`.
        capability: the emulated compute capability as an integer, such as 80.
        before, after: files with the bytes of each operand before and after the launch.
    """

    test: str
    symbol: str
    source: Path
    capability: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    before: tuple[Path, ...]
    after: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in {*self.before, *self.after})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-launches", type=Path, required=True, help="the folder that keeps them")


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--record-launches").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    emulated_kernel.observers.append(lambda launched: _keep(folder, launched))


def recorded(folder: Path) -> list[Recorded]:
    """Reads the launches in a folder, in an order that does not depend on the timing of the tests."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.launch"))]
    return sorted((_read(folder, each) for each in found), key=lambda each: (each.test, each.symbol))


def _read(folder: Path, members: dict[str, object]) -> Recorded:
    def paths(names: object) -> tuple[Path, ...]:
        assert isinstance(names, list)
        return tuple(folder / name for name in names)

    def sizes(values: object) -> tuple[int, int, int]:
        assert isinstance(values, list)
        x, y, z = values
        return x, y, z

    test, symbol, shared_bytes, capability = (
        members[name] for name in ("test", "symbol", "shared_bytes", "capability")
    )
    assert isinstance(test, str) and isinstance(symbol, str)  # noqa: PT018
    assert isinstance(shared_bytes, int) and isinstance(capability, int)  # noqa: PT018
    before, after = paths(members["before"]), paths(members["after"])
    own = folder / f"{symbol}.cu"
    return Recorded(
        test, symbol, own, capability, sizes(members["grid"]), sizes(members["block"]), shared_bytes, before, after
    )


def _keep(folder: Path, launched: emulated_kernel.Launched) -> None:
    source = launched.source
    if _ANY_NAME not in source:  # the source gives its kernels their names
        source = source.replace(launched.symbol, _ANY_NAME)
    symbol = f"octet_{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    _write(folder / f"{symbol}.cu", source.encode())
    launch = {
        "symbol": symbol,
        "capability": int(launched.architecture.removeprefix("sm_")),
        "grid": launched.grid,
        "block": launched.block,
        "shared_bytes": launched.shared_bytes,
        "before": _blobs(folder, launched.before),
        "after": _blobs(folder, launched.after),
    }
    path = folder / f"{digest_of_json(launch).removeprefix('sha256:')}.launch"
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)")
    _write(path, json.dumps(launch | {"test": test}).encode())


def _blobs(folder: Path, values: Sequence[bytes]) -> list[str]:
    names = [f"{hashlib.sha256(value).hexdigest()}.bytes" for value in values]
    for name, value in zip(names, values, strict=True):
        _write(folder / name, value)
    return names


def _write(path: Path, content: bytes) -> None:
    """Writes a file atomically, because other processes may write the same file."""
    if path.exists():
        return
    mine = path.with_suffix(f".{os.getpid()}")
    mine.write_bytes(content)
    mine.replace(path)
