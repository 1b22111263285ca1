"""Builds the image of an ARM worker for tests/cluster: `python -m tests.support.arm64_image CLUSTER WHEEL`.

`… register` configures the kernel to run ARM programs with QEMU, on the whole machine; `… unregister` undoes that.

The image consists of the arm64 Debian of `arm64_root`, the locked packages that a worker needs, and the wheel for
aarch64, which `make wheel` builds. No ARM program is run to build it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import arm64_root
from tests.support.deployment import ROOT, stages

NAME = "octet.test/octet-worker-arm64:1"
BINFMT, RULE = Path("/proc/sys/fs/binfmt_misc"), "octet-cluster-aarch64"
PACKAGES = "lib/python3.11/site-packages"
# The name of a wheel contains the oldest glibc version on which it runs.
_PLATFORMS = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 26, 24, 17)]
_ABIS = [f"--abi={abi}" for abi in ("cp311", "abi3", "none")]
_OCTET = "#!/opt/octet/bin/python3\nimport sys\n\nfrom service.cli import main\n\nsys.exit(main())\n"


def without_compiler() -> list[str]:
    """Returns the locked packages, except those that the Dockerfile removes from workers."""
    removed = re.findall(r"pip uninstall --yes (.*) \\", (ROOT / "Dockerfile").read_text())[0].split()
    lines = (ROOT / "requirements" / "serve.lock").read_text().splitlines()
    locked = [
        line.split()[0] for line in lines if re.match(r"[a-z0-9-]+==", line) and "sys_platform == 'win32'" not in line
    ]
    return [each for each in locked if each.partition("==")[0] not in removed]


def fill(root: Path, wheel: Path) -> None:
    """Installs into an arm64 Debian everything that the Dockerfile's stage `worker` contains."""
    octet = root / "opt" / "octet"
    (octet / "bin").mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        *_PLATFORMS,
        *_ABIS,
    ]
    command += ["--python-version=3.11", "--implementation=cp", f"--target={octet / PACKAGES}"]
    subprocess.run([*command, *without_compiler(), wheel], check=True)
    (octet / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (octet / "bin" / "python3").symlink_to("/usr/bin/python3")
    (octet / "bin" / "octet").write_text(_OCTET)
    (octet / "bin" / "octet").chmod(0o755)
    (root / "data").mkdir()
    for file, line in (("passwd", "octet:x:10001:10001::/data:/bin/sh"), ("group", "octet:x:10001:")):
        with (root / "etc" / file).open("a") as file_object:
            file_object.write(line + "\n")


def main(cluster: Path, wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        shutil.copytree(arm64_root.root(), root, symlinks=True)
        fill(root, wheel)
        environment = {**stages()["worker"].environment, "PATH": "/opt/octet/bin:/usr/bin:/bin"}
        variables = [f"--env={name}={value}" for name, value in environment.items()]
        # The image is labeled amd64, because containerd refuses images of an architecture other than its own.
        image = [str(cluster / "out" / "images" / "octet-worker-arm64.tar"), NAME, str(root), "--", "octet"]
        subprocess.run([cluster / "mkimage.py", "--arch=amd64", "--user=10001:10001", *variables, *image], check=True)


def register() -> None:
    if not (BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=True)
    qemu = shutil.which(arm64_root.QEMU)
    assert qemu is not None, f"there is no {arm64_root.QEMU}: install qemu-user-static"
    # F: the kernel opens QEMU now, because containers do not contain it. O and C: programs keep their names and
    # credentials.
    (BINFMT / "register").write_text(arm64_root.rule_of(RULE, qemu, "OCF"))


def unregister() -> None:
    (BINFMT / RULE).write_text("-1")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["register"]:
            register()
        case ["unregister"]:
            unregister()
        case [cluster, wheel]:
            main(Path(cluster), Path(wheel))
        case _:
            sys.exit(__doc__)
