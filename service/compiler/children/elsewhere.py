"""The program that runs a role in another Python environment: `python elsewhere.py ROLE`.

`build.elsewhere` starts it in the sandbox. It reads the request from the working directory, and writes the result or
the error there. Of Octet's environment, it can import the package `service` alone: the others would hide packages of
the same names.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
REQUEST_FILE, RESULT_FILE = "request.json", "result.json"


def main(role: str) -> None:
    _import_only(PACKAGE)
    child = importlib.import_module("service.compiler.children.child")
    module, name = child.ROLES[role].split(":")
    handler = getattr(importlib.import_module(module), name)
    report = importlib.import_module("service.compiler.sandbox").Report(os.open(os.devnull, os.O_WRONLY))
    result = handler(json.loads(Path(REQUEST_FILE).read_text()), report)
    Path(RESULT_FILE).write_text(json.dumps(result))


def _import_only(package: Path) -> None:
    """Makes a package importable without the other packages in its folder."""
    spec = importlib.util.spec_from_file_location(
        package.name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[package.name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main(sys.argv[1])
