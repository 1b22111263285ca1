"""A cache of the object files of kernels. Each kernel is compiled once for all layers, builds and models.

The build child determines which kernels a model needs, and writes their programs: tensor programs without weights. The
build child has read data derived from an upload, which may have taken the child over. So it does not compile the
programs, and cannot access this cache. Another child compiles one program in a sandbox that contains nothing else, and
its object is stored under the digest of the program. If an upload takes over the build child, the child can submit any
program. But the object is then stored under the digest of that program, which no other build requests.
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

_LEFT_BEHIND_S = 3600.0  # an incomplete file that is older was left by a killed process
_SYMBOL = re.compile(r"octet_[a-z0-9_]{1,120}")


@dataclass(frozen=True)
class KernelProgram:
    """A kernel to be compiled.

    Attributes:
        symbol: the name by which the model calls the kernel.
        path: the file with the kernel's program, as `kernels.objects.program_of` writes it.
        target: the target for which the kernel is compiled.

    Raises:
        BuildFailed: `symbol` is not a valid name for a kernel.
    """

    symbol: str
    path: Path
    target: Target

    def __post_init__(self) -> None:
        if _SYMBOL.fullmatch(self.symbol) is None:
            raise BuildFailed(f"{self.symbol!r} is not the name of a kernel")

    @cached_property
    def key(self) -> Digest:
        """The digest of everything that determines the bytes of the object."""
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
    """A store of object files, keyed by the digest of their program.

    Args:
        directory: created if it does not exist. Several processes may share it; children must not write to it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, program: KernelProgram) -> Path | None:
        """Returns the path of the object, or None if it is not in the cache or is damaged."""
        path = self._path(program)
        with suppress(FileNotFoundError, ElfError):
            check_object(path.read_bytes(), program.target.architecture, program.symbol)
            return path
        return None

    def keep(self, program: KernelProgram, made: Path) -> Path:
        """Stores the object that a child compiled, and returns its path in the cache.

        Raises:
            BuildFailed: the file is not an object that defines this kernel and nothing else.
            StorageFull: the disk is full.
        """
        data = made.read_bytes()
        try:
            check_object(data, program.target.architecture, program.symbol)
        except ElfError as error:
            raise BuildFailed(f"the object of kernel {program.symbol} is not valid: {error}") from error
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
        """Deletes incomplete files left by killed processes."""
        for left in self._directory.glob(".*"):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                    left.unlink()

    def _path(self, program: KernelProgram) -> Path:
        return self._directory / f"{program.key.removeprefix('sha256:')}.o"
