"""Tests docs/how-to/kubernetes.md: dumps, empties and restores the bundled database as described there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.deployment import ROOT
from tests.support.kubernetes import API, Cluster, load
from tests.support.waiting import WORK_TIMEOUT_S

PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"


def test_a_dump_of_the_database_is_restored(cluster: Cluster, tmp_path: Path) -> None:
    dump, end, ended, restore, begin = commands("Back up and restore")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    before = cluster.octet("builds")
    for command in (dump, end, ended):
        follow(cluster, command, tmp_path)
    empty = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
    program = ["psql", "--username=octet", "--host=/var/run/postgresql", "--dbname=octet", f"--command={empty}"]
    cluster.kubectl("exec", "octet-postgresql-0", "--", *program)
    for command in (restore, begin):
        follow(cluster, command, tmp_path)
    cluster.until_all_ready()
    assert cluster.octet("builds") == before
    with load(cluster, API, "digits") as seen:
        pass
    assert seen.counts().keys() <= {"right"}


def commands(section: str) -> list[str]:
    text = PAGE.read_text().split(f"\n## {section}\n")[1].partition("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def follow(cluster: Cluster, command: str, folder: Path) -> None:
    programs = {"kubectl": cluster.folder / "out" / "bin" / "kubectl", "helm": cluster.helm_program()}
    inside = f"{cluster.folder / 'run' / 'in'} %s --kubeconfig={cluster.folder / 'run' / 'admin.conf'}"
    functions = "".join(f'{name}() {{ {inside % program} "$@"; }}\n' for name, program in programs.items())
    done = subprocess.run(
        ["bash", "-ec", functions + command], cwd=folder, env=os.environ, capture_output=True, timeout=WORK_TIMEOUT_S
    )
    assert done.returncode == 0, f"{command}\n{done.stderr.decode()}"
