"""Reads the folder of a published model in a sandboxed child, because all its files may be hostile."""

from __future__ import annotations

from pathlib import Path

from service.compiler.importers.published.files import boundary_of
from service.compiler.messages.published import FOLDER, MODEL_FILE, TOKENIZER_FILE, FolderRequest, FolderResult
from service.compiler.sandbox import Access, run_child, working
from service.core.errors import BuildFailed
from service.core.models.text import MAX_TOKENIZER_BYTES
from service.core.settings import Settings
from service.core.target import Target

_CPU_S, _STALL_S = 60.0, 30.0


def read_folder(
    source: Path,
    scratch: Path,
    settings: Settings,
    *,
    variant: str = "",
    target: Target | None = None,
    pooling: str = "",
    max_length: int | None = None,
) -> FolderResult:
    """Reads a folder. Its model is then in `MODEL_FILE` of `scratch`, and its tokenizer in `TOKENIZER_FILE`.

    Args:
        source: the folder, or a zip archive of it.
        scratch: an empty folder, to which the child can write whatever it wants.
        variant, target, pooling, max_length: as for `FolderRequest`.

    Raises:
        OctetError: the folder cannot be read. The error names the file.
    """
    request = FolderRequest(
        source.absolute(),
        variant,
        "" if target is None else target.name,
        pooling,
        max_length,
        settings.max_upload_bytes,
    )
    readable = boundary_of(source) if source.is_dir() else source
    members = run_child(
        FOLDER.name,
        request.to_json(),
        access=Access(readable=(source.absolute(), readable.absolute()), writable=(scratch,)),
        limits=working(_CPU_S, _STALL_S, settings.build_memory_limit_bytes),
        allow_unsandboxed=settings.allow_unsandboxed,
    )
    result = FOLDER.read_result(members)
    for name in (MODEL_FILE, *([TOKENIZER_FILE] if result.has_tokenizer else [])):
        # The child may have been taken over, and could leave a link, which this process would follow with its rights.
        path = scratch / name
        if path.is_symlink() or not path.is_file():
            raise BuildFailed(f"the process that read the folder did not write {name}")
    if result.has_tokenizer and (scratch / TOKENIZER_FILE).stat().st_size > MAX_TOKENIZER_BYTES:
        raise BuildFailed(f"the tokenizer is larger than {MAX_TOKENIZER_BYTES} bytes")
    return result
