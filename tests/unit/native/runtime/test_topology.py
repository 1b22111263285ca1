"""Checks that the runtime and Python choose the same cores on a machine whose cores differ: this one, with other files
in /sys.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.system.cores import usable_cores

_CPUS = Path("/sys/devices/system/cpu")
_INSIDE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-euc")
_MOUNT = 'mount --bind "$0" /sys/devices/system/cpu; exec "$@"'
_PROGRAM = """
import json
from service.core.system.cores import affordable_threads, computing_cores
from service.runtime.threads import Threads, confined
cores = [sorted(core) for core in computing_cores()]
print(json.dumps([cores, affordable_threads(), Threads().count, confined(0).count]))
"""


@pytest.fixture
def cpus(tmp_path: Path) -> Path:
    """A copy of the kernel's files about processors, as far as they are read."""
    for core in usable_cores():
        for cpu in core:
            for name in ("topology/thread_siblings_list", "cache/index3/shared_cpu_list"):
                if (_CPUS / f"cpu{cpu}" / name).exists():
                    (tmp_path / f"cpu{cpu}" / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(_CPUS / f"cpu{cpu}" / name, tmp_path / f"cpu{cpu}" / name)
    probe = subprocess.run([*_INSIDE, _MOUNT, str(tmp_path), "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"NOT TESTED: files cannot be put in the place of /sys's here: {probe.stderr.strip()}")
    return tmp_path


@pytest.mark.parametrize(("slow", "is_used"), [(1023, True), (512, True), (511, False), (100, False)])
def test_slow_cores_are_not_used(slow: int, is_used: bool, cpus: Path) -> None:
    """If one core is fast and another is less than half as fast, the fast one computes alone."""
    cores = usable_cores()[:2]
    if len(cores) < 2:
        pytest.skip("NOT TESTED: there is but one core")
    for core, capacity in zip(cores, (slow, 1024), strict=True):
        for cpu in core:
            (cpus / f"cpu{cpu}").mkdir(exist_ok=True)
            (cpus / f"cpu{cpu}" / "cpu_capacity").write_text(f"{capacity}\n")
    expected = [sorted(core) for core in (cores if is_used else cores[1:])]
    program = f"import os; os.sched_setaffinity(0, {[cpu for core in cores for cpu in core]})\n{_PROGRAM}"
    command = [*_INSIDE, _MOUNT, str(cpus), sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen, affordable, native, measured = json.loads(done.stdout)
    assert chosen == expected
    assert affordable == native == measured == len(expected)
