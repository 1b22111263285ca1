"""A small arm64 Debian, for tests of what users do on an ARM board.

`python -m tests.support.arm64_root COMMAND …` runs a command in it. Its packages are Debian's, unpacked but not
configured: no maintainer script runs. Commands, and all programs that they start, run in qemu's user mode. They run in
separate namespaces with a private binfmt_misc (Linux 6.7), so that the machine and its other users are not affected.
The root is cached in `~/.cache/octet-arm64`.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The Debian release that Raspberry Pi OS is based on: glibc 2.36, Python 3.11.
SUITE = "bookworm"
_ESSENTIAL = ("coreutils", "dash", "grep", "sed")
PACKAGES = (*_ESSENTIAL, "python3", "python3-venv", "libstdc++6", "libssl3", "ca-certificates", "curl")
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
QEMU = "qemu-aarch64-static"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "octet-arm64"

# The binfmt_misc rule for aarch64. It compares the ELF header except the OS ABI, and accepts executables and shared
# objects. F: the kernel opens the interpreter now, because the root does not contain it.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_ENTER = r"""
set -eu
root=$1 qemu=$2 rule=$3 directory=$4; shift 4
mount -t tmpfs none "$root/mnt"
mkdir "$root/mnt/binfmt"  # stays: what is registered goes with it
mount -t binfmt_misc binfmt_misc "$root/mnt/binfmt"
printf '%s' "$rule" > "$root/mnt/binfmt/register"
for shared in dev sys; do mount --rbind "/$shared" "$root/$shared"; done
mount -t proc proc "$root/proc"
mount -t tmpfs none "$root/tmp"
for file in resolv.conf hosts; do touch "$root/etc/$file"; mount --bind "/etc/$file" "$root/etc/$file"; done
for bound in $BOUND; do mkdir -p "$root$bound"; mount --rbind "$bound" "$root$bound"; done
exec chroot "$root" /usr/bin/env -i -C "$directory" "$@"
"""


class Unavailable(Exception):
    """This machine cannot build the root or run commands in it. The message contains the reason."""


def root() -> Path:
    """Returns the root. The first call on a machine builds it: half a minute, 150 MB.

    Raises:
        Unavailable: a tool is missing, or Debian's archive cannot be reached.
    """
    made = CACHE / SUITE
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made)
    return made


def why_not() -> str | None:
    """Returns the reason why this machine cannot run commands in the root, or None if it can."""
    try:
        run(["true"])
    except (Unavailable, subprocess.CalledProcessError) as error:
        return str(error) + (getattr(error, "stderr", None) or "")
    return None


def run(
    command: Sequence[str],
    *,
    bound: Sequence[Path] = (),
    directory: str = "/",
    cpu: str = "max",
    environment: Mapping[str, str] | None = None,
    check: bool = True,
    capture: bool = True,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs `command` in the root, as its superuser.

    Args:
        bound: folders of this machine that the command can read and change. They have the same paths in the root.
        directory: the working directory.
        cpu: a CPU in the list of `qemu-aarch64-static -cpu help`. The command detects its features.

    Raises:
        CalledProcessError: the command failed, and `check` is set.
        Unavailable: see `root`.
    """
    found = root()
    qemu = shutil.which(QEMU)
    assert qemu is not None  # `root` has checked it
    rule = rule_of("octet-aarch64", qemu, "POCF")
    inner = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8", "QEMU_CPU": cpu}
    variables = [f"{name}={value}" for name, value in {**inner, **(environment or {})}.items()]
    return subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"),
            *("sh", "-c", _ENTER, "enter", str(found), qemu, rule, directory, *variables, *command),
        ],
        check=check,
        capture_output=capture,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "BOUND": " ".join(map(str, bound))},
    )


def rule_of(name: str, qemu: str, flags: str) -> str:
    """Returns the line that registers QEMU for aarch64 programs when it is written to binfmt_misc's `register`."""
    return f":{name}:M::{_MAGIC}:{_MASK}:{qemu}:{flags}"


def _make(made: Path) -> None:
    missing = [tool for tool in (QEMU, "apt-get", "dpkg-deb", "unshare") if not shutil.which(tool)]
    if missing or not KEYRING.exists():
        raise Unavailable(f"there is no {', '.join(missing) or KEYRING}: install qemu-user-static on a Debian")
    unfinished = made.with_name(f"{made.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    for folder in ("bin", "lib", "sbin"):
        (unfinished / "usr" / folder).mkdir(parents=True)
        (unfinished / folder).symlink_to(f"usr/{folder}")
    for package in _download():
        unpack = 'dpkg-deb --fsys-tarfile "$0" | tar --extract --keep-directory-symlink --directory "$1"'
        _tool("sh", "-c", unpack, str(package), str(unfinished))
    (unfinished / "usr/bin/sh").unlink(missing_ok=True)
    (unfinished / "usr/bin/sh").symlink_to("dash")
    # The commands need only these parts of what the maintainer scripts would do.
    (unfinished / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (unfinished / "etc/group").write_text("root:x:0:\n")
    certificates = sorted((unfinished / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = unfinished / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_bytes(b"".join(each.read_bytes() for each in certificates))
    for folder in ("dev", "proc", "sys", "tmp", "mnt", "root"):
        (unfinished / folder).mkdir(exist_ok=True)
    unfinished.rename(made)


def _download() -> list[Path]:
    """Downloads the packages and their dependencies. apt checks Debian's signatures."""
    state = CACHE / "apt"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    sources.write_text(f"deb [arch=arm64 signed-by={KEYRING}] {MIRROR} {SUITE} main\n")
    options = {
        **{"APT::Architecture": "arm64", "APT::Architectures": "arm64", "Dir::State": state, "Dir::Cache": state},
        **{"Dir::State::status": "/dev/null", "Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "/dev/null"},
        "APT::Sandbox::User": "",
    }
    chosen = [f"--option={name}={value}" for name, value in options.items()]
    _tool("apt-get", *chosen, "update")
    wanted = ("install", "--yes", "--download-only", "--no-install-recommends", *PACKAGES)
    _tool("apt-get", *chosen, *wanted)
    return sorted((state / "archives").glob("*.deb"))


def _tool(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed: {done.stderr.strip()}")


if __name__ == "__main__":
    if platform.system() != "Linux":
        sys.exit("Linux only")
    here = [Path.cwd()]
    environment = {"QEMU_CPU": os.environ.get("QEMU_CPU", "max")}
    ran = run(sys.argv[1:], bound=here, directory=str(here[0]), check=False, capture=False, environment=environment)
    sys.exit(ran.returncode)
