"""The checks of `octet doctor`. A check never raises: it reports a problem as its finding."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import service
from service.core.cluster.crash import Record
from service.core.digest import Digest
from service.core.errors import CorruptBlob, OctetError
from service.core.settings import Settings
from service.core.system.cores import Core, affordable_threads, build_cores, computing_cores, usable_cores
from service.core.system.gpus import LIBRARY, detect_gpus
from service.core.system.installed import CARDS_PACKAGE, GPUS, SERVER
from service.core.target import TARGETS, detect_host, gpu_features

_PROJECT = "octet-serve"
_LOW_DISK_BYTES = 5 << 30  # about a hundred times what a build of a large model needs; leaves room for growing logs
_DATABASE_S = _BUCKET_S = 5.0  # how long to wait for PostgreSQL and for the bucket
_HASHING_S = 10.0


class State(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Check:
    """One finding. `hint` is what to do about it; empty if nothing is to be done."""

    name: str
    state: State
    detail: str
    hint: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": self.state, "detail": self.detail, "hint": self.hint}


def check_all(settings: Settings, server: str, key: str | None = None) -> list[Check]:
    return [
        *_host(),
        *_cards(),
        *_versions(),
        *_sandbox(settings),
        _predictions(),
        _builds(settings),
        *_disk(settings.data_dir),
        *(_store(settings.store_dir) if settings.store_url is None else _bucket(settings.store_url)),
        *_database(settings),
        *_crashes(settings),
        *_server(server, key),
    ]


def _host() -> Iterator[Check]:
    host = detect_host()
    yield Check("cpu", State.OK, f"{host.model_name or 'unnamed'}, {host.architecture}, {_cores()} cores")
    if host.best is None:
        hint = "octet serve cannot run predictions here; it can compile for other machines, with --target"
        yield Check("target", State.PROBLEM, host.why_none, hint)
    else:
        yield Check("target", State.OK, f"{host.best.reason} → {host.best.name}")
        yield Check("runs", State.OK, ", ".join(target.name for target in TARGETS if target.runs_on(host)))
    others = (target for target in TARGETS if target.architecture == host.architecture and not target.runs_on(host))
    for target in others:
        if target.device == "cuda":
            continue
        yield Check("cannot run", State.NOTE, f"{target.name}: no {', '.join(sorted(target.missing_on(host)))}")


def _cards() -> Iterator[Check]:
    """Checks the GPUs that can run artifacts here, and the compiler for GPU targets."""
    found = detect_gpus()
    for gpu in found.cards:
        runs = gpu_features([gpu])
        state = State.OK if runs else State.NOTE
        names = sorted(target.name for target in TARGETS if target.device == "cuda" and target.features & runs)
        targets = ", ".join(names) or "no target"
        capability = f"{gpu.capability // 10}.{gpu.capability % 10}"
        memory = f"{gpu.memory_bytes / 1e9:.1f} GB"
        yield Check("GPU", state, f"{gpu.name}, {memory}, compute capability {capability} → {targets}")
    if found.cuda:
        yield Check("GPU driver", State.OK, f"CUDA {found.cuda}")
    elif found.problem:
        yield Check("GPU", State.WARNING, found.problem, "artifacts for GPUs do not run here")
    else:
        yield Check("GPU", State.NOTE, f"none: {LIBRARY} of NVIDIA's driver is not installed")
    try:
        yield Check("GPU compiler", State.OK, f"{CARDS_PACKAGE} {importlib.metadata.version(CARDS_PACKAGE)}")
    except importlib.metadata.PackageNotFoundError:
        yield Check("GPU compiler", State.NOTE, f"no {CARDS_PACKAGE}", f"to compile for GPUs: {GPUS}")


def _versions() -> Iterator[Check]:
    from service.compiler.lowering.toolchain import fingerprint

    yield Check("octet", State.OK, f"{importlib.metadata.version('octet-serve')} on Python {platform.python_version()}")
    yield from _python_api()
    ours = ("octet_compiler", "passes")
    try:
        tools = {name: version for name, version in fingerprint().items() if name not in ours}
    except ModuleNotFoundError as error:
        yield Check("toolchain", State.NOTE, f"no {error.name}: this is the runtime only", f"to compile: {SERVER}")
        return
    yield Check("toolchain", State.OK, ", ".join(f"{name} {version}" for name, version in tools.items()))


def _python_api() -> Iterator[Check]:
    """Checks that `import octet` finds this project's package, and that no other project has written to its folder."""
    others = sorted(_projects_with("octet") - {_PROJECT})
    for name in others:
        found = f"another project, {name} {importlib.metadata.version(name)}, is installed in its folder"
        hint = f"pip uninstall {name} && pip install --force-reinstall --no-deps {_PROJECT}"
        yield Check("python api", State.PROBLEM, found, hint)
    spec = importlib.util.find_spec("octet")
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    expected = Path(service.__file__).parents[1] / "octet" / "__init__.py"
    if origin is None or origin.resolve() != expected.resolve():
        found = f"import octet finds {origin or 'no package'}, not {expected}"
        yield Check("python api", State.PROBLEM, found, "remove that folder from PYTHONPATH, or rename it")


def _projects_with(package: str) -> set[str]:
    """Returns the names of the installed projects that contain `package`. Python's own `packages_distributions` creates
    an object for each installed file, which takes half a second.
    """
    found = set()
    for project in importlib.metadata.distributions():
        declared, record = project.read_text("top_level.txt"), project.read_text("RECORD") or ""
        is_declared = declared is not None and package in declared.split()
        if is_declared or (not declared and f"\n{package}/" in f"\n{record}"):
            found.add(project.metadata["Name"])
    return found


def _sandbox(settings: Settings) -> Iterator[Check]:
    from service.compiler import sandbox

    for finding in sandbox.check():
        if finding.available:
            yield Check(finding.name, State.OK, finding.detail)
        elif settings.allow_unsandboxed:
            yield Check(
                finding.name, State.WARNING, f"{finding.detail}, and OCTET_ALLOW_UNSANDBOXED is set: {finding.lost}"
            )
        else:
            detail = f"{finding.detail}; builds and octet run are refused"
            yield Check(finding.name, State.PROBLEM, detail, "OCTET_ALLOW_UNSANDBOXED=1")


def _predictions() -> Check:
    cores, fast, threads = usable_cores(), computing_cores(), affordable_threads()
    which = f"{len(cores)} cores"
    if len(fast) < len(cores):
        which = f"the {len(fast)} fastest of {which}, {_format_cpus(fast)}"
    return Check("predictions", State.OK, f"run on {which}, {threads} threads at a time")


def _format_cpus(cores: Sequence[Core]) -> str:
    return ", ".join(str(cpu) for cpu in sorted(Core().union(*cores)))


def _builds(settings: Settings) -> Check:
    cores, own = usable_cores(), build_cores(settings.build_cores)
    where = "all cores" if len(own) >= len(cores) else f"the last {len(own)} of {len(cores)} cores"
    return Check("builds", State.OK, f"run on {where}, at niceness {settings.build_nice}")


def _disk(data_dir: Path) -> Iterator[Check]:
    existing = next(path for path in (data_dir, *data_dir.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Check("data", State.PROBLEM, f"{existing} is not writable by this user", "choose another --data-dir")
        return
    free_bytes = shutil.disk_usage(existing).free
    state = State.OK if free_bytes >= _LOW_DISK_BYTES else State.WARNING
    yield Check(
        "data",
        state,
        f"{data_dir}, {free_bytes / 1e9:.1f} GB free" + ("" if data_dir.exists() else ", does not exist yet"),
    )


def _store(store_dir: Path) -> Iterator[Check]:
    """Checks blobs against their digests, for at most `_HASHING_S`; in a large store only some of them."""
    from service.cache import OciLayout

    if not store_dir.exists() or not any(store_dir.iterdir()):  # a new server creates the folder before its contents
        return
    try:
        blobs = OciLayout.open(store_dir).blobs
    except OctetError as error:
        yield Check("store", State.PROBLEM, error.message, error.hint or "")
        return
    found = hashed = size_bytes = 0
    corrupt = []
    deadline_s = time.monotonic() + _HASHING_S
    for digest in blobs.iterate():
        found += 1
        if time.monotonic() > deadline_s:
            continue
        hashed += 1
        try:
            blobs.path(digest)
            size_bytes += blobs.size_bytes(digest)
        except CorruptBlob:
            corrupt.append(digest)
    detail = f"{found} blobs, {hashed} of them hashed ({size_bytes / 1e6:.0f} MB)"
    if corrupt:
        hint = "the damaged blobs were moved aside, and are rebuilt on the next push"
        yield Check("store", State.PROBLEM, f"{detail}, damaged: {', '.join(corrupt)}", hint)
    else:
        yield Check("store", State.OK, f"{detail}, all intact")


def _bucket(url: str) -> Iterator[Check]:
    try:
        from service.cache.objects import ObjectBucket

        found = ObjectBucket(url, _BUCKET_S).head("oci-layout")
    except ModuleNotFoundError as error:
        yield Check(
            "store", State.PROBLEM, f"{error.name} is not installed", "pip install 'octet-serve[server,objects]'"
        )
    except OctetError as error:
        yield Check("store", State.PROBLEM, error.message, "check AWS_ENDPOINT_URL, AWS_REGION and the credentials")
    else:
        yield Check("store", State.OK, url if found else f"{url}, still empty")


def _database(settings: Settings) -> Iterator[Check]:
    if settings.database_url is None and not settings.database_file.exists():
        return
    from service.db import Database
    from service.workers.repair import database_damage

    name = "PostgreSQL" if settings.database_url else str(settings.database_file)
    try:
        database = Database.of(settings.model_copy(update={"database_timeout_s": _DATABASE_S}))
    except OctetError as error:
        yield Check("database", State.PROBLEM, error.message, error.hint or "")
        return
    try:
        current, expected = database.schema()
        if damage := database_damage(settings):
            yield Check("database", State.PROBLEM, damage, f"octet doctor --repair --data-dir {settings.data_dir}")
            return
    except OctetError as error:
        yield Check("database", State.PROBLEM, error.message, error.hint or "")
        return
    except Exception as error:
        hint = "start it" if settings.database_url else "restore it, or move it to another folder"
        yield Check("database", State.PROBLEM, f"{name}: {error}", hint)
        return
    finally:
        database.close()
    if current == expected:
        yield Check("database", State.OK, f"{name}, schema {current}" if settings.database_url else f"schema {current}")
    else:
        yield Check("database", State.NOTE, f"schema {current}; octet serve migrates it to {expected}")


def _crashes(settings: Settings) -> Iterator[Check]:
    from service.workers.crashes import quarantine_error

    for artifact, record in _quarantined(settings).items():
        error = quarantine_error(artifact, record)
        yield Check("quarantine", State.PROBLEM, error.message, error.hint or "")


def _quarantined(settings: Settings) -> Mapping[Digest, Record]:
    from service.workers.crashes import crashes_of

    if settings.database_url is None:
        return crashes_of(settings).quarantined()
    from service.db import Database

    try:
        database = Database.of(settings.model_copy(update={"database_timeout_s": _DATABASE_S}))
    except OctetError:  # `_database` reports it
        return {}
    try:
        current, expected = database.schema()
        return crashes_of(settings, database).quarantined() if current == expected else {}
    except OctetError:
        return {}
    finally:
        database.close()


def _server(server: str, key: str | None) -> Iterator[Check]:
    from service.cli.client import Client, ServerUnreachable

    with Client(server, key) as client:
        try:
            about = client.server_metadata()
        except ServerUnreachable as error:
            yield Check("server", State.NOTE, error.message, "octet serve starts one")
            return
        except OctetError as error:  # the server responds, but rejects the request
            yield Check("server", State.WARNING, f"{server}: {error.message}", error.hint or "")
            return
        ready = "ready" if client.is_ready() else "not ready"
        yield Check("server", State.OK, f"{about['name']} {about['version']} at {server}, {ready}")
        try:
            broken = client.broken_files()
        except OctetError:  # the key does not allow listing models
            return
        for each in broken:
            yield Check("models", State.PROBLEM, f"{each['file']} of --models is not served: {each['reason']}")


def _cores() -> int:
    return len(os.sched_getaffinity(0))
