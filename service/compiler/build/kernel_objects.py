"""The step of a build that compiles its kernels, several at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path

from service.compiler.build.background import in_background
from service.compiler.build.object_cache import KernelProgram, ObjectCache
from service.compiler.build.steps import Steps
from service.compiler.messages.building import KERNEL, KernelRequest
from service.compiler.messages.files import OBJECT_FILE, program_file
from service.core.builds.build import Stage

_POLL_S = 0.1
_LOG_EVERY_S = 10.0


def kernel_objects(steps: Steps, symbols: Sequence[str]) -> list[Path]:
    """Returns the object file of each kernel, which comes from the cache or is compiled from the build child's program.

    Raises:
        BuildFailed: a program is missing, or its object does not define the kernel of that name.
    """
    started_s = time.monotonic()
    cache = ObjectCache(steps.settings.objects_dir.absolute())
    target = steps.request.target
    programs = [KernelProgram(name, steps.output("build", program_file(name)), target) for name in symbols]
    found = {program.symbol: path for program in programs if (path := cache.find(program)) is not None}
    missing = [program for program in programs if program.symbol not in found]
    steps.progress.log(f"kernels: {len(programs)}, {len(found)} of them found in the cache")
    with in_background(len(steps.processors)) as start:
        made = [start(partial(_compile, steps, cache, program)) for program in missing]
        _await(steps, made)
        found |= {program.symbol: object_.result() for program, object_ in zip(missing, made, strict=True)}
    steps.times_s["kernels"] = round(time.monotonic() - started_s, 4)
    return [found[program.symbol] for program in programs]


def _await(steps: Steps, objects: Sequence[Future[Path]]) -> None:
    """Waits for all objects. Reports progress as a fraction of the stage, and occasionally in the log.

    The first error is raised at once.
    """
    logged_s = time.monotonic()
    while pending := [each for each in objects if not each.done()]:
        done = len(objects) - len(pending)
        steps.enter(Stage.CODEGEN, 0.5 + 0.5 * done / len(objects))
        if time.monotonic() - logged_s >= _LOG_EVERY_S:
            steps.progress.log(f"kernels: {done} of {len(objects)} compiled")
            logged_s = time.monotonic()
        wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        for each in objects:
            if each.done():
                each.result()


def _compile(steps: Steps, cache: ObjectCache, program: KernelProgram, poll: Callable[[], None]) -> Path:
    """Compiles one kernel in a child that can access only the kernel's program."""
    request = KernelRequest(program.path, program.symbol, program.target.name)
    within = f"kernel-{program.symbol}"
    steps.run(KERNEL, request, readable=[program.path], within=within, poll=poll)
    return cache.keep(program, steps.output(within, OBJECT_FILE))
