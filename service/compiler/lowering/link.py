"""Objects in, a shared library out, by the one linker that every machine has: LLD inside the PyPI wheel `ziglang`.

One linker of one version gives the same bytes everywhere, whatever is installed, for every architecture. It is a
static program that reads no file but the objects, needs no other and takes 15 ms. The objects come from a process that
has read the upload, so it runs in the sandbox too, allowed to become that program and none else.

Objects are checked before the linker reads them, and the library before any process loads it (`core.elf`).

The library names no other library. The functions of libm that its code calls are resolved when it is loaded; what it
wants of the runtime are pointers that the runtime fills in (`core.elf.names.FILLED_IN`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from service.compiler.sandbox import Access, Limits, run_program
from service.compiler.sandbox.messages import clean
from service.compiler.sandbox.scratch import scratch_directory
from service.core.build import Stage
from service.core.elf import ElfError, check_library, check_object
from service.core.errors import BuildFailed
from service.core.target import Target

_LIMITS = Limits(wall_s=1200, cpu_s=60, memory_bytes=4 << 30, file_bytes=2 << 30, threads=1, stall_s=60)

_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}

_OPTIONS = (
    "-shared",
    "--threads=1",
    # No identity but the content's: nothing of the time, the place or the tool goes into the bytes.
    "--build-id=none",
    "--strip-debug",
    "--hash-style=gnu",
    "--eh-frame-hdr",
    "--gc-sections",
    "--fatal-warnings",
    # An object could otherwise ask for libraries by a section of its own.
    "--no-dependent-libraries",
    # Neither stack nor relocated data stay writable and executable; a missing symbol is noticed on loading.
    *("-z", "noexecstack", "-z", "relro", "-z", "now", "-z", "separate-code"),
)


def link(
    objects: Sequence[Path],
    output: Path,
    target: Target,
    *,
    poll: Callable[[], None] = lambda: None,
    allow_unsandboxed: bool = False,
) -> None:
    """Links `objects`, in this order, to the shared library `output`; equal objects give equal bytes.

    Args:
        objects: ELF relocatable objects of the target's architecture.
        output: written whole or not at all, in an existing directory.
        target: decides the architecture.
        poll: called while the linker runs; may raise.
        allow_unsandboxed: link even where the kernel cannot sandbox the linker.

    Raises:
        BuildFailed: an object is not one, is of another architecture, holds what it may not, or does not link.
        SandboxUnavailable: the kernel lacks something, and `allow_unsandboxed` is False.
    """
    for path in objects:
        _check_object(path, target)
    with scratch_directory(output.parent, "link-") as scratch:
        library = scratch / "library.so"
        options = ["-m", _EMULATION[target.architecture], *_OPTIONS, "-o", str(library)]
        try:
            status, log = run_program(
                [str(linker()), "ld.lld", *options, *(str(path.absolute()) for path in objects)],
                access=Access(tuple(objects), (scratch,), (linker(),)),
                limits=_LIMITS,
                poll=poll,
                allow_unsandboxed=allow_unsandboxed,
            )
        except BuildFailed as error:
            error.stage = Stage.LINK
            raise
        if status != 0 or not library.is_file():
            reason = next((line for line in log.splitlines() if "error:" in line), log).removeprefix("ld.lld: error: ")
            raise _failure(f"the linker exited with status {status}: {clean(reason.replace(str(scratch), '.'), 300)}")
        try:
            check_library(library.read_bytes(), target.architecture)
        except ElfError as error:
            raise _failure(f"the linked library cannot be used: {error}") from error
        library.chmod(0o644)
        library.replace(output)


def linker() -> Path:
    """The program.

    Raises:
        BuildFailed: the wheel is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildFailed("the linker is missing", stage=Stage.LINK, hint="pip install ziglang")
    return Path(spec.origin).with_name("zig")


def _check_object(path: Path, target: Target) -> None:
    # Landlock keeps a child from making links; without Landlock, one may lead anywhere.
    if path.is_symlink() or not path.is_file():
        raise _failure(f"{path.name} is not a regular file")
    try:
        check_object(path.read_bytes(), target.architecture)
    except OSError as error:  # its writer chose its mode
        raise _failure(f"{path.name} cannot be read: {error.strerror}") from error
    except ElfError as error:
        raise _failure(f"{path.name} cannot be linked: {error}") from error


def _failure(message: str) -> BuildFailed:
    return BuildFailed(
        message, stage=Stage.LINK, hint="this is a defect of the compiler or a malicious file; please report the model"
    )
