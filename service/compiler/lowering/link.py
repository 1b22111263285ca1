"""Links objects to a shared library, with the LLD that is in the PyPI wheel `ziglang`.

The version of the wheel is fixed, so the library has the same bytes on whichever machine it is linked. The linker is a
static program that reads only the objects, and takes 15 ms. The objects come from a process that has read the upload,
so the linker runs in the sandbox too.

Objects are checked before the linker reads them, and the library before any process loads it (`core.elf`).

The library does not depend on other libraries. The libm functions that it calls are resolved when it is loaded. The
functions of the runtime that it calls are pointers that the runtime fills in (`core.elf.names.FILLED_IN`).
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from service.compiler.sandbox import Access, Limits, run_program
from service.compiler.sandbox.messages import clean
from service.compiler.sandbox.scratch import scratch_directory
from service.core.builds.build import Stage
from service.core.elf import ElfError, check_library, check_object
from service.core.errors import BuildFailed
from service.core.target import Target

_LIMITS = Limits(wall_s=1200, cpu_s=60, memory_bytes=4 << 30, file_bytes=2 << 30, threads=1, stall_s=60)

_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux", "riscv64": "elf64lriscv"}

_OPTIONS = (
    "-shared",
    "--threads=1",
    # The bytes of the library depend only on the objects, not on the time, paths or the version of a tool.
    "--build-id=none",
    "--strip-debug",
    "--hash-style=gnu",
    "--eh-frame-hdr",
    "--gc-sections",
    "--fatal-warnings",
    # Without this option, an object could request libraries by a special section.
    "--no-dependent-libraries",
    # The stack is not executable, relocated data is read-only, and a missing symbol is an error when loading.
    *("-z", "noexecstack", "-z", "relro", "-z", "now", "-z", "separate-code"),
)


def link(
    objects: Sequence[Path],
    output: Path,
    target: Target,
    *,
    poll: Callable[[], None] = lambda: None,
    allow_unsandboxed: bool = False,
    trusted: bool = False,
) -> None:
    """Links `objects`, in this order, to the shared library `output`. Equal objects give equal bytes.

    Args:
        objects: ELF relocatable objects of the target's architecture.
        output: the path of the library, in an existing directory. The library is written completely or not at all.
        target: the target that the objects were compiled for.
        poll: a function that is called while the linker runs; it may raise an exception to stop the linker.
        allow_unsandboxed: link even if the kernel cannot sandbox the linker.
        trusted: this process has generated the objects from its own input, so the linker runs without a sandbox and
            without `poll`. Starting the sandbox takes 0.1 s of processor time.

    Raises:
        BuildFailed: a file is not an object, is for another architecture, has forbidden content, or cannot be linked.
        SandboxUnavailable: the kernel lacks a feature, and `allow_unsandboxed` is False.
    """
    for path in objects:
        _check_object(path, target)
    with scratch_directory(output.parent, "link-") as scratch:
        library = scratch / "library.so"
        options = ["-m", _EMULATION[target.architecture], *_OPTIONS, "-o", str(library)]
        command = [str(linker()), "ld.lld", *options, *(str(path.absolute()) for path in objects)]
        if trusted:
            ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            status, log = ended.returncode, ended.stdout
        else:
            try:
                status, log = run_program(
                    command,
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
            raise _failure(f"the linked library is not valid: {error}") from error
        library.chmod(0o644)
        library.replace(output)


def linker() -> Path:
    """Returns the path of the linker.

    Raises:
        BuildFailed: the wheel is not installed.
    """
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise BuildFailed("the linker is missing", stage=Stage.LINK, hint="pip install ziglang")
    return Path(spec.origin).with_name("zig")


def _check_object(path: Path, target: Target) -> None:
    # Landlock prevents a child from creating links. Without Landlock, a link could lead to any file.
    if path.is_symlink() or not path.is_file():
        raise _failure(f"{path.name} is not a regular file")
    try:
        check_object(path.read_bytes(), target.architecture)
    except OSError as error:  # the child that wrote the file may have removed its read permission
        raise _failure(f"{path.name} cannot be read: {error.strerror}") from error
    except ElfError as error:
        raise _failure(f"{path.name} cannot be linked: {error}") from error


def _failure(message: str) -> BuildFailed:
    return BuildFailed(
        message, stage=Stage.LINK, hint="this is a defect of the compiler or a malicious file; please report the model"
    )
