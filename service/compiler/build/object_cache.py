"""Object files of kernels, each compiled once, for all layers, builds and models.

The build child says which kernels a model needs, and writes their programs: tensor programs, without weights. It has
read what was made of an upload, so it neither compiles them nor sees this cache. What is kept under a key is what a
child of its own made of one program, in a sandbox that holds nothing else, and the key is the digest of that program. A
build child that an upload took over can hand over any program; what it compiles to is kept under that program's digest,
for which no other build asks.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from service.cache.durable import storage_errors
from service.compiler.lowering import toolchain
from service.compiler.targets import codegen_target
from service.core.digest import Digest, digest_of_file, digest_of_json
from service.core.elf import ElfError, check_object
from service.core.errors import BuildFailed
from service.core.target import Target

_LEFT_BEHIND_S = 3600.0  # no process writes an object for as long
_SYMBOL = re.compile(r"octet_[a-z0-9_]{1,120}")


@dataclass(frozen=True)
class KernelProgram:
    """One kernel to compile.

    Attributes:
        symbol: what the model calls it by.
        path: its program, as `kernels.objects.program_of` writes it.
        target: what it is compiled for.

    Raises:
        BuildFailed: the symbol is none of a kernel.
    """

    symbol: str
    path: Path
    target: Target

    def __post_init__(self) -> None:
        if _SYMBOL.fullmatch(self.symbol) is None:
            raise BuildFailed(f"{self.symbol!r} is not the name of a kernel")

    @cached_property
    def key(self) -> Digest:
        """The digest of everything that decides the object's bytes."""
        code = codegen_target(self.target)
        return digest_of_json(
            {
                "symbol": self.symbol,
                "program": digest_of_file(self.path),
                "code": "+".join(code.cards) or dict(code.llvm),
                "tools": toolchain.code_versions(self.target),
            }
        )


class ObjectCache:
    """Objects by the key of their programs.

    Args:
        directory: made where it does not exist; several processes may share it. No child may write there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, program: KernelProgram) -> Path | None:
        """The object, where it is kept and whole."""
        path = self._path(program)
        with suppress(FileNotFoundError, ElfError):
            check_object(path.read_bytes(), program.target.architecture, program.symbol)
            return path
        return None

    def keep(self, program: KernelProgram, made: Path) -> Path:
        """Keeps what a child compiled `program` to; where it is from now on.

        Raises:
            BuildFailed: it is not an object that defines this kernel and nothing else.
            StorageFull: there is no room on the disk.
        """
        data = made.read_bytes()
        try:
            check_object(data, program.target.architecture, program.symbol)
        except ElfError as error:
            raise BuildFailed(f"the object of kernel {program.symbol} cannot be kept: {error}") from error
        path = self._path(program)
        partial = path.with_name(f".{uuid.uuid4().hex}")
        with storage_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("wb") as file:
                    file.write(data)
                    os.fsync(file.fileno())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        return path

    def sweep(self) -> None:
        """Deletes what processes that were killed have left half written."""
        for left in self._directory.glob(".*"):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                    left.unlink()

    def _path(self, program: KernelProgram) -> Path:
        return self._directory / f"{program.key.removeprefix('sha256:')}.o"
