"""Checks which modules each process loads, by running the imports. import-linter checks the layers."""

from __future__ import annotations

import subprocess
import sys

import grimp
import pytest

from tests.support.waiting import WORK_TIMEOUT_S

# Modules that the API may load. They find the format of a file, the contents of an artifact's archive, the key of a
# build, and whether the kernel can sandbox a compiler.
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
def test_processes_that_only_start_others_load_no_tvm(module: str) -> None:
    loaded, _ = _after_importing(module)
    assert not {"tvm", "tvm_ffi"} & loaded


def test_the_command_line_is_quick_to_start() -> None:
    """A command loads only the modules that it needs: `octet models`, for example, does not load a web framework."""
    loaded, _ = _after_importing("service.cli.app")
    assert not {"fastapi", "uvicorn", "sqlalchemy", "service.api", "service.db"} & loaded


# Modules that a server needs only for a migration, a picture, a trace, PostgreSQL or the gRPC repository service.
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
    """Returns the names of all modules that `octet serve` and its control plane load."""
    loaded, _ = _after_importing(
        "service.cli.commands.servers.serve, service.api.ops.supervisor, service.api.ops.server"
    )
    return loaded


@pytest.mark.parametrize("module", _NEEDED_LATER)
def test_the_serving_process_loads_rarely_needed_modules_on_demand(serving: set[str], module: str) -> None:
    assert module not in serving


def test_the_supervisor_listens_before_it_loads_the_server() -> None:
    loaded, _ = _after_importing("service.api.ops.supervisor")
    assert not {"fastapi", "sqlalchemy", "numpy", "grpc"} & loaded


def _after_importing(module: str) -> tuple[set[str], str]:
    """Returns the modules that a new process has loaded after importing `module`, and its list of mapped files."""
    code = f"import sys, {module}; print(*sys.modules); print(open('/proc/self/maps').read())"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WORK_TIMEOUT_S
    )
    modules, _, libraries = process.stdout.partition("\n")
    return set(modules.split()), libraries


def test_imports_have_no_cycles() -> None:
    """Imports in functions and for type checkers count too, because they also make two modules depend on each other."""
    graph = grimp.build_graph("service", cache_dir=None)
    circles = [
        f"{module} -> {' -> '.join(way)}"
        for module in sorted(graph.modules)
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if imported in graph.modules and (way := graph.find_shortest_chain(imported, module))
    ]
    assert circles == []
