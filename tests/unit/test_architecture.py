"""Which process loads what. The floors themselves are held by import-linter; these run the imports."""

from __future__ import annotations

import subprocess
import sys

import grimp
import pytest

from tests.support.waiting import WORK_TIMEOUT_S

# What the API may ask: which format a file has, what an archive of an artifact holds, which build answers it, whether
# the kernel can lock a compiler in.
_LIGHT_COMPILER = (
    "service.compiler.build.artifact_archive",
    "service.compiler.importers.detect",
    "service.compiler.importers.zip_names",
    "service.compiler.lowering.pass_order",
    "service.compiler.lowering.toolchain",
    "service.compiler.sandbox",
)
# Packages that contain such modules. Importing one of these loads none of its other modules.
_LIGHT_PACKAGES = {"service.compiler.build", "service.compiler.importers", "service.compiler.lowering"}

_SERVING = ["service.api.ops.server", "service.workers.inference", "service.runtime"]
_WITHOUT_TVM = [
    "service.core",
    "service.db",
    "service.cache",
    "service.compiler.build.pipeline",
    "service.quantize.sandboxed",
    "service.cli.app",
]


@pytest.mark.parametrize("module", _SERVING)
def test_the_serving_process_loads_no_compiler(module: str) -> None:
    loaded, libraries = _after_importing(module)
    compiler = {name for name in loaded if name.startswith("service.compiler.")} - _LIGHT_PACKAGES
    assert [name for name in compiler if not name.startswith(_LIGHT_COMPILER)] == []
    assert "tvm" not in loaded
    assert [name for name in libraries if name.startswith("libtvm") and name != "libtvm_ffi.so"] == []


@pytest.mark.parametrize("module", _WITHOUT_TVM)
def test_what_only_starts_others_loads_no_tvm(module: str) -> None:
    loaded, _ = _after_importing(module)
    assert not {"tvm", "tvm_ffi"} & loaded


def test_the_command_line_is_quick_to_start() -> None:
    """What a command does not need it does not load: `octet models` is no place for a web framework."""
    loaded, _ = _after_importing("service.cli.app")
    assert not {"fastapi", "uvicorn", "sqlalchemy", "service.api", "service.db"} & loaded


# What a server without a migration, a picture, a trace, PostgreSQL or gRPC about the repository has no use for.
_NEEDED_LATER = (
    "alembic",
    "PIL",
    "google.protobuf",
    "httpx",
    "numpy",
    "opentelemetry.sdk",
    "obstore",
    "psycopg",
    "service.cli.client",
    "sqlalchemy.dialects.postgresql",
)


@pytest.fixture(scope="module")
def serving() -> set[str]:
    """What `octet serve` loads, and its control plane."""
    loaded, _ = _after_importing("service.cli.serve, service.api.ops.supervisor, service.api.ops.server")
    return loaded


@pytest.mark.parametrize("module", _NEEDED_LATER)
def test_the_serving_process_loads_what_few_need_where_it_is_needed(serving: set[str], module: str) -> None:
    assert module not in serving


def test_the_supervisor_listens_before_it_loads_the_server() -> None:
    loaded, _ = _after_importing("service.api.ops.supervisor")
    assert not {"fastapi", "sqlalchemy", "numpy", "grpc"} & loaded


def _after_importing(module: str) -> tuple[set[str], str]:
    """The names of all modules that a fresh process has after importing `module`, and the libraries it has mapped."""
    code = f"import sys, {module}; print(*sys.modules); print(open('/proc/self/maps').read())"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WORK_TIMEOUT_S
    )
    modules, _, libraries = process.stdout.partition("\n")
    return set(modules.split()), libraries


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports within functions and for type checkers count: a circle of those is a circle of concepts, too."""
    graph = grimp.build_graph("service", cache_dir=None)
    circles = [
        f"{module} -> {' -> '.join(way)}"
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if imported in graph.modules and (way := graph.find_shortest_chain(imported, module))
    ]
    assert circles == []
