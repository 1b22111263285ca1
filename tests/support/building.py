"""Fixtures for compile workers: a database, a store with a model in it, and functions that replace the compiler."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest
from service.compiler.lowering import toolchain
from service.core.builds.build import Build, Progress, Stage
from service.core.digest import Digest
from service.core.settings import Settings
from service.core.target import parse_target
from service.db import BuildStore, Database, ModelStore
from service.workers.compile_worker import Compile, CompileWorker
from tests.support.control_plane import publish
from tests.support.waiting import GIVE_UP_S

TARGET = "x86-64-v3"


def succeed(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    progress.stage(Stage.CODEGEN, 0.5)
    (scratch / "object.o").write_bytes(b"code")
    progress.log(f"{request.source.read_bytes()!r} for {request.target}")
    return publish(layout, request.source_digest)


def raising(error: BaseException) -> Compile:
    def compile(*arguments: Any) -> Digest:
        raise error

    return compile


@dataclass
class Endless:
    """A replacement for the compiler that runs until `progress` raises an exception, like the real pipeline while a
    child process works.
    """

    began: threading.Event = field(default_factory=threading.Event)
    ended_by: BaseException | None = None

    def __call__(
        self, request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
    ) -> Digest:
        try:
            while True:
                progress.stage(Stage.CODEGEN, 0.1)
                self.began.set()
                time.sleep(0.01)
        except BaseException as error:
            self.ended_by = error
            raise


class CompileSetup:
    """A database and a store with builds, and the compile workers that run these builds."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        self.settings = Settings(data_dir=data_dir, **settings)
        self.database = Database(self.settings.url_of_database)
        self.database.migrate()
        self.builds = BuildStore(self.database, max_attempts=self.settings.max_build_attempts)
        self.models = ModelStore(self.database)
        self.layout = OciLayout(self.settings.store_dir)
        self.stop = threading.Event()

    def ask(self, model: bytes = b"a model") -> Build:
        inputs = toolchain.build_inputs(
            self.layout.blobs.put_bytes(model), parse_target(TARGET), "litert-reference", {}
        )
        return self.builds.submit(inputs, "digits", 1)[0]

    def worker(self, compile: Compile, owner: str = "worker") -> CompileWorker:
        return CompileWorker(self.builds, self.layout, self.settings, owner, compile=compile)

    def work(self, compile: Compile = succeed) -> bool:
        return self.worker(compile).work_once(self.stop)

    @contextmanager
    def working(self, compile: Endless) -> Iterator[threading.Thread]:
        """Runs a worker in a thread. Yields when it is in the middle of a build."""
        thread = threading.Thread(target=self.work, args=(compile,), name="compile")
        thread.start()
        assert compile.began.wait(GIVE_UP_S)
        try:
            yield thread
        finally:
            self.stop.set()
            thread.join(GIVE_UP_S)
            assert not thread.is_alive()
