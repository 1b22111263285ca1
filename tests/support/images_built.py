"""Builds the images of the Dockerfile with buildah. It needs neither a container engine nor a registry.

    python -m tests.support.images_built FOLDER     # the images for tests/cluster, each as FOLDER/NAME.tar

It needs root, and Debian's packages buildah and mmdebstrap. The base image is Debian with its Python 3.11. It gets the
name of the official image, so that the Dockerfile need not be changed. Layers are cached in `build/images-cluster`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.deployment import ROOT

BASE = "docker.io/library/python:3.11-slim"
_MIRROR, _SUITE = "http://deb.debian.org/debian", "bookworm"  # this release has Python 3.11
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TIMEOUT_S = 1800


def why_not() -> str | None:
    """Returns the reason why no image can be built on this machine, or None if one can."""
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} missing (Debian: apt-get install {' '.join(missing)})"
    return "only root builds images with buildah's isolation chroot" if os.geteuid() else None


@dataclass(frozen=True)
class Images:
    """The store of buildah in a folder.

    Args:
        folder: the folder. Images and layers in it are reused.
    """

    folder: Path

    @cached_property
    def _driver(self) -> str:
        """The storage driver: overlays if the kernel allows them here; otherwise copies of whole images."""
        store = ["buildah", "--root", str(self.folder / "store-overlay"), "--runroot", str(self.folder / "run-overlay")]
        probe = subprocess.run([*store, "--storage-driver", "overlay", "info"], capture_output=True, check=False)
        return "overlay" if probe.returncode == 0 else "vfs"

    def buildah(self, *arguments: object) -> str:
        """Runs buildah and returns its output.

        Raises:
            RuntimeError: buildah failed. The message contains the end of its output.
        """
        kind = self._driver
        store = ["--root", self.folder / f"store-{kind}", "--runroot", self.folder / f"run-{kind}"]
        return _run("buildah", *store, "--storage-driver", kind, *arguments)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def make_base(self) -> str:
        """Builds the base image if it does not exist, and returns its name."""
        if not self._has(BASE):
            self._import(BASE, "python3", "python3-venv", "ca-certificates")
        return BASE

    def build(self, target: str, tag: str, arguments: Mapping[str, str] | None = None) -> str:
        """Builds a target of the Dockerfile as the image `tag`."""
        self.make_base()
        given = [f"--build-arg={name}={value}" for name, value in (arguments or {}).items()]
        what = ["--target", target, "--tag", tag, "--file", ROOT / "Dockerfile", ROOT]
        how = ["--isolation", "chroot", "--pull-never", "--format", "docker", "--layers"]
        self.buildah("bud", *how, *self._package_sources(), *given, *what)
        return tag

    def build_postgres(self, tag: str) -> str:
        """Builds an image of Debian's PostgreSQL 15, for `tests/cluster`."""
        if not self._has(tag):
            self._import(tag, "postgresql-15")
        with self._container(tag) as container:
            for command in (
                ["usermod", "--uid", "999", "postgres"],
                # The folder of the socket, which is normally created when the machine starts.
                ["install", "--directory", "--owner=postgres", "--group=postgres", "/var/run/postgresql"],
                ["chown", "--recursive", "postgres:postgres", "/var/lib/postgresql"],
            ):
                self.buildah("run", "--isolation", "chroot", container, "--", *command)
            script = ROOT / "tests" / "cluster" / "postgres-entrypoint.sh"
            self.buildah("copy", "--chmod", "755", container, script, "/usr/local/bin/entrypoint.sh")
            entry = json.dumps(["/usr/local/bin/entrypoint.sh"])
            self.buildah("config", "--user", "999", "--entrypoint", entry, "--port", "5432", container)
            self.buildah("commit", "--format", "docker", container, tag)
        return tag

    def save(self, tag: str, path: Path) -> None:
        """Writes an image in the format that `docker load` and `ctr images import` read."""
        path.unlink(missing_ok=True)
        self.buildah("push", tag, f"docker-archive:{path}:{tag}")

    def configuration(self, tag: str) -> dict[str, Any]:
        """Returns the image's configuration: `User`, `Labels`, `Env`, ..."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", tag))["Docker"]["config"]
        return found

    @contextmanager
    def root(self, tag: str) -> Iterator[Path]:
        """Mounts the files of an image, and yields their folder."""
        with self._container(tag) as container:
            yield Path(self.buildah("mount", container).strip())

    @contextmanager
    def _container(self, tag: str) -> Iterator[str]:
        container = self.buildah("from", "--pull-never", tag).strip()
        try:
            yield container
        finally:
            self.buildah("rm", container)

    def _has(self, tag: str) -> bool:
        return tag in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def _import(self, tag: str, *packages: str) -> None:
        """Creates an image of Debian with `packages`."""
        archive = self.folder / "debian.tar"
        chosen = ["--variant=minbase", f"--include={','.join(packages)}"]
        _run("mmdebstrap", "--quiet", *chosen, _SUITE, archive, _MIRROR)
        with self._container("scratch") as container:
            self.buildah("add", "--quiet", container, archive, "/")
            self.buildah("config", "--env", _PATH, container)
            self.buildah("commit", "--quiet", container, tag)
        archive.unlink()

    def _package_sources(self) -> list[str]:
        """Returns options that mount this machine's pip settings, and the files to which they refer."""
        settings = {}
        lines = _run(sys.executable, "-m", "pip", "config", "list").splitlines()
        for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # variables come last
            name, value = line.split("=", 1)
            settings[name.rpartition(".")[2]] = value.strip("'\"")
        file = self.folder / "pip.conf"
        file.write_text("\n".join(["[global]", *(f"{name} = {value}" for name, value in settings.items())]) + "\n")
        words = " ".join(settings.values()).split()
        # A local index refers to files in its own folder.
        indexes = {str(Path(word.removeprefix("file://")).parent) for word in words if word.startswith("file://")}
        paths = sorted(indexes | {word for word in words if word.startswith("/") and Path(word).exists()})
        volumes = [f"{file}:/etc/pip.conf:ro", *(f"{path}:{path}:ro" for path in paths)]
        return [f"--volume={volume}" for volume in volumes]


def _run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


# The images in the table in tests/cluster/README.md: name -> target of the Dockerfile, build arguments.
_CLUSTER: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "octet-cluster": ("api", {"WITNESSES": "no"}),
    "octet-worker": ("worker", {}),
}
_POSTGRES = "postgres"


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds the images of tests/cluster.")
    parser.add_argument("folder", type=Path, help="where to write NAME.tar")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join([*_CLUSTER, _POSTGRES])}; all by default")
    parser.add_argument("--tag", default="1", help="of Octet's images")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        parser.error(reason)
    # The store of the tests is not used: buildah 1.28 reuses a label's layer even if it was built with other arguments.
    images = Images(ROOT / "build" / "images-cluster")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or [*_CLUSTER, _POSTGRES]:
        if name == _POSTGRES:
            image = images.build_postgres("octet.test/postgres:15")
        else:
            target, arguments = _CLUSTER[name]
            image = images.build(target, f"octet.test/{name}:{given.tag}", arguments)
        path = given.folder / f"{name}.tar"
        images.save(image, path)
        print(image, path, flush=True)


if __name__ == "__main__":
    main()
