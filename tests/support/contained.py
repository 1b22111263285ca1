"""Runs a program in an image's root like an orchestrator: read-only, as the image's user, without capabilities."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The mounts are in a separate namespace, which ends with the process. The last `exec` replaces the shell by the
# program.
_ENTER = """
set -e
root=$1 data=$2; shift 2
mount --bind "$root" "$root"
mount --bind "$data" "$root/data"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot "$root" "$@"
"""


@contextmanager
def contained(
    root: Path, data: Path, configuration: Mapping[str, Any], *arguments: str, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Runs the image's entry point with `arguments`. If it still runs at the end, kills it.

    Args:
        root: the image's files.
        data: the folder that becomes its volume.
        configuration: the image's configuration.
    """
    user, group = configuration["User"].split(":")
    variables = [*configuration["Env"], *(f"{name}={value}" for name, value in environment.items())]
    drop = ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    command = ["setpriv", f"--reuid={user}", f"--regid={group}", *drop, "env", "--ignore-environment", *variables]
    enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh", str(root), str(data)]
    program = [*configuration["Entrypoint"], *arguments]
    with subprocess.Popen([*enter, *command, *program], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
