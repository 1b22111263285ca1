"""Runs the configured dialects (`core.builds.dialects`) in this process."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path

from service.core.builds import dialects
from service.core.builds.dialects import Source
from service.core.errors import InvalidInput, OctetError

_loaded: dict[str, str] = {}  # name of a dialect -> its digest


def load_configured() -> None:
    """Runs the configured dialects that this process has not run yet.

    Raises:
        InvalidInput: a dialect cannot be found, or its code failed. The message names the file and the line.
    """
    for source in dialects.configured():
        digest = str(source.digest)
        if _loaded.get(source.name) != digest:
            _load(source)
            _loaded[source.name] = digest


def _load(source: Source) -> None:
    try:
        if source.file is not None:
            _run(source.name, source.file)
            return
        for entry in source.entries:
            found = entry.load()
            if callable(found):
                found()
    except OctetError as error:
        error.message = f"{source.name}: {error.message}"
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidInput(
            f"the dialect {source.name} failed at {Path(where.filename).name}:{where.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _run(name: str, file: Path) -> None:
    """Runs a file as a module of its own. Files beside it cannot be imported: their changes would not change the key of
    a build.
    """
    spec = importlib.util.spec_from_file_location(f"octet_dialect_{name}", file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
