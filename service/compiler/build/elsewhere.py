"""Runs a role in another Python environment, in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from service.compiler.children import elsewhere
from service.compiler.references.environment import Environment
from service.compiler.sandbox import Access, Limits, run_program
from service.compiler.sandbox.messages import clean
from service.core.errors import BuildFailed

_MOST_RESULT_BYTES = 4 << 20
_MESSAGE_CHARACTERS = 250


def run_elsewhere(
    environment: Environment,
    role: str,
    request: Mapping[str, Any],
    *,
    access: Access,
    limits: Limits,
    on_message: Callable[[dict[str, Any]], None] | None,
    poll: Callable[[], None],
    allow_unsandboxed: bool,
    on_cpu: Callable[[float], None],
) -> dict[str, Any]:
    """Does the same as `sandbox.run_child`, with the interpreter and the packages of `environment`.

    The interpreter starts in the sandbox: it can read its own packages and the files in `access`, and compute. The
    modules of the role may import only packages that `environment` has. The role sends no messages, so `on_message` is
    not called.

    Raises:
        BuildFailed: the role ended with an error, or without a result; and the errors of `sandbox.run_program`.
    """
    scratch = access.scratch
    assert scratch is not None
    (scratch / elsewhere.REQUEST_FILE).write_text(json.dumps(request))
    status, log = run_program(
        [str(environment.python.absolute()), "-s", "-P", "-B", elsewhere.__file__, role],
        access=Access((*access.readable, *environment.readable()), access.writable, environment.executable()),
        limits=limits,
        poll=poll,
        allow_unsandboxed=allow_unsandboxed,
        on_cpu=on_cpu,
    )
    if status != 0:
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "no message")
        raise BuildFailed(f"{environment.python} exited with status {status}: {clean(last, _MESSAGE_CHARACTERS)}")
    return _read_result(scratch / elsewhere.RESULT_FILE)


def _read_result(path: Path) -> dict[str, Any]:
    """Reads the result that the child wrote. The upload may control its content."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_RESULT_BYTES:
        raise BuildFailed(f"the child wrote no result, or one of more than {_MOST_RESULT_BYTES} bytes")
    try:
        result = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict):
        raise BuildFailed("the child wrote a result that is not a JSON object")
    return result
