"""Children that are forks of this process: for a command that has loaded what they need, and runs but a moment.

A new interpreter with NumPy takes longer to start than most models take to answer. What a fork gets is the memory of
this process as it is, so it is for what has not looked at anything hostile yet; descriptors it keeps none but its own.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from service.compiler.children import child
from service.compiler.sandbox import Fork
from service.compiler.sandbox.zygotes import ChildDescriptors
from service.core.own_threads import own_threads


def keeping(*descriptors: int) -> Fork:
    """For `run_child`: its child is a fork of this process, which keeps these descriptors, by their numbers."""

    def fork(role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """Raises `RuntimeError`: this process has other threads, whose locks the child would find closed for ever."""
        child.load(role)
        threads = own_threads()
        if threads > 1:
            raise RuntimeError(f"a process with {threads} threads is forked for the {role} process")
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                os.umask(0o077)
                os.environ.clear()
                child.become(role, ends, directory, env, descriptors)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:  # whatever happened: it is no copy of its parent
                os._exit(1)
        return pid

    return fork
