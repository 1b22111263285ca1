"""Starts children as forks of this process. This module is used by short commands that have already loaded everything
that the child needs.

Starting a new interpreter and importing NumPy takes longer than most models take to run. A fork inherits the memory of
this process, so this process must not have read any hostile data before. The fork closes every inherited file
descriptor that it was not explicitly given.
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
from service.core.system.own_threads import own_threads


def keeping(*descriptors: int) -> Fork:
    """Returns a `fork` function for `run_child`. The child is a fork of this process and keeps these descriptors."""

    def fork(role: str, ends: ChildDescriptors, directory: Path, env: Mapping[str, str]) -> int:
        """Forks this process.

        Raises:
            RuntimeError: this process has several threads. Locks held by other threads would stay locked in the child.
        """
        child.load(role)
        threads = own_threads()
        if threads > 1:
            raise RuntimeError(f"cannot fork the {role} process from a process with {threads} threads")
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
            finally:  # in any case, the child must not run the parent's code
                os._exit(1)
        return pid

    return fork
