"""A program in the root of an image, as orchestrators start it: read-only, as its user, without capabilities."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Mounts of a namespace of its own, which end with the process. The last `exec` makes the program this very process.
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
    """The image's entry point with `arguments`; killed in the end, if it still runs.

    Args:
        root: the image's files.
        data: a folder, which becomes its volume.
        configuration: the image's.
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
