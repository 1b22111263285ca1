"""Sandboxed children try to access what they may not."""

from __future__ import annotations

import os
import resource
import shutil
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from service.compiler.lowering.link import linker
from service.compiler.sandbox import Access, check, run_program, zygotes
from service.compiler.sandbox.kernel import architecture
from service.core.errors import (
    BuildCrashed,
    BuildFailed,
)
from tests.support.kernel_headers import syscall_numbers
from tests.support.sandbox import ALLOWED_PROC_FILES, LIMITS, attempt, limited

pytestmark = pytest.mark.skipif(
    not all(finding.available for finding in check()), reason="this kernel cannot sandbox anything"
)


# -- operations that must work


def test_a_child_gets_its_request_and_returns_a_result(scratch: Path) -> None:
    heard: list[dict[str, Any]] = []
    result = attempt(scratch, "echo", {"a": [1, None, "ü"]}, on_message=heard.append)
    assert result["request"] == {"a": [1, None, "ü"]}
    assert heard == [
        {"stage": "codegen", "fraction": 0.5},
        {"at": {"stage": "codegen", "op": "conv2d", "tensor": "x"}},
        {"log": "hello"},
    ]


def test_a_child_inherits_nothing(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    result = attempt(scratch, "echo", env={"TVM_NUM_THREADS": "2"})
    assert result["environment"].keys() - zygotes.ENVIRONMENT.keys() == {"HOME", "TMPDIR", "TVM_NUM_THREADS"}
    assert result["directory"] == result["environment"]["TMPDIR"] == str(scratch)
    assert result["umask"] == 0o077
    assert result["group"] is True


def test_a_child_has_no_files_of_its_parent(scratch: Path, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        listed = attempt(scratch, "descriptors")
    assert listed.pop("0") == "/dev/null"
    process_directory = f"/proc/{listed.pop('process')}"
    # /proc/self can be opened without any right. Of the pipes, two are for the log and one is for messages.
    assert {target.split(":")[0] for target in listed.values()} == {"pipe", process_directory, *ALLOWED_PROC_FILES}


def test_a_child_reads_and_writes_only_what_is_allowed(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("bytes")
    result = attempt(scratch, "work", {"readable": str(tmp_path / "model")}, readable=(tmp_path / "model",))
    assert result == {"text": "bytes", "mode": 0o600}
    assert (scratch / "result").read_text() == "bytes"


def test_a_child_may_start_threads(scratch: Path) -> None:
    assert attempt(scratch, "use_threads", {"threads": 8}) == {"sum": 28}


def test_a_child_with_one_thread_may_start_none(scratch: Path) -> None:
    with pytest.raises(BuildFailed, match="can't start new thread"):
        attempt(scratch, "use_threads", {"threads": 1}, limits=limited(threads=1))


def test_a_child_may_signal_itself(scratch: Path) -> None:
    assert attempt(scratch, "signal_oneself") == {"seen": 2}


# -- files


def test_no_other_file_can_be_read(scratch: Path, tmp_path: Path) -> None:
    secret = tmp_path / "private" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    results = attempt(scratch, "read_files", {"secret": str(secret)})
    assert results.pop("hard link") == results.pop("symbolic link") == "EPERM"
    assert set(results.values()) <= {"EACCES", "EXDEV"}
    assert results["open"] == "EACCES"
    assert list(scratch.iterdir()) == []


def test_no_other_file_can_be_changed(scratch: Path, tmp_path: Path) -> None:
    victim = tmp_path / "private" / "victim"
    victim.parent.mkdir()
    victim.write_text("whole")
    (scratch / "result").write_text("forged")
    before = victim.stat()
    results = attempt(scratch, "write_files", {"victim": str(victim)})
    assert set(results.values()) <= {"EACCES", "EPERM", "EXDEV"}
    assert victim.read_text() == "whole"
    assert list(victim.parent.iterdir()) == [victim]
    after = victim.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)
    assert [path.name for path in scratch.iterdir()] == ["result"]


def test_a_readable_file_is_not_writable(scratch: Path, tmp_path: Path) -> None:
    victim = tmp_path / "model"
    victim.write_text("whole")
    (scratch / "result").write_text("forged")
    results = attempt(scratch, "write_files", {"victim": str(victim)}, readable=(victim,))
    assert set(results.values()) <= {"EACCES", "EPERM", "EXDEV"}
    assert victim.read_text() == "whole"


# -- the rest of the system


def test_no_socket_can_be_opened(scratch: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        results = attempt(scratch, "open_sockets", {"port": server.getsockname()[1]})
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert set(results.values()) == {"EPERM"}


def test_no_program_can_be_started(scratch: Path) -> None:
    results = attempt(scratch, "start_programs")
    assert set(results.values()) == {"EPERM"}


DANGEROUS = """
    mount umount2 pivot_root chroot unshare setns bpf io_uring_setup keyctl add_key request_key userfaultfd
    perf_event_open init_module finit_module delete_module kexec_load reboot swapon name_to_handle_at
    open_by_handle_at personality memfd_create ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd
    shmget msgget semget mq_open setuid setgid setgroups capset fsopen open_tree acct syslog clock_settime
    sethostname inotify_init1 fanotify_init splice tee vmsplice seccomp landlock_create_ruleset
"""


def test_no_dangerous_system_call_reaches_the_kernel(scratch: Path) -> None:
    names = DANGEROUS.split()
    table = syscall_numbers(architecture())
    results = attempt(scratch, "raw_calls", {"numbers": {name: table[name] for name in names}})
    assert results == dict.fromkeys(names, "EPERM")


def test_an_unknown_system_call_looks_unimplemented(scratch: Path) -> None:
    assert attempt(scratch, "raw_calls", {"numbers": {"new": 5000, "clone3": 435}}) == {
        "new": "ENOSYS",
        "clone3": "ENOSYS",
    }


def test_no_other_process_can_be_harmed(scratch: Path) -> None:
    limits, affinity = resource.getrlimit(resource.RLIMIT_NOFILE), os.sched_getaffinity(0)
    results = attempt(scratch, "harm_processes")
    assert set(results.values()) == {"EPERM"}
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
    assert os.sched_getaffinity(0) == affinity


def test_even_root_keeps_no_privilege(scratch: Path) -> None:
    status = attempt(scratch, "privileges")
    assert status.pop("NoNewPrivs") == "1"
    assert status.pop("Seccomp") == "2"  # a filter
    assert {int(capabilities, 16) for capabilities in status.values()} == {0}


def test_limits_apply_even_to_root(scratch: Path) -> None:
    assert set(attempt(scratch, "raise_limits").values()) == {"EPERM"}


@pytest.mark.skipif(architecture() != "x86_64", reason="the other calling conventions exist on x86-64 only")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("b8 14 00 00 00 cd 80 c3", id="int80"),  # mov eax, 20 (i386 getpid); int 0x80; ret
        pytest.param("b8 27 00 00 40 0f 05 c3", id="x32"),  # mov eax, 0x40000027 (x32 getpid); syscall; ret
    ],
)
def test_a_foreign_calling_convention_kills_the_child(scratch: Path, code: str) -> None:
    with pytest.raises(BuildCrashed, match="the foreign_call process died of SIGSYS"):
        attempt(scratch, "foreign_call", {"code": code})


def test_the_execute_role_can_only_become_the_listed_program(scratch: Path) -> None:
    access = Access((), (scratch,), (linker(),))
    status, printed = run_program([str(linker()), "version"], access=access, limits=LIMITS)
    assert (status, printed.strip()) == (0, version("ziglang"))
    shutil.copy("/bin/true", scratch / "copy")
    for other in ("/bin/true", str(scratch / "copy")):
        with pytest.raises(BuildFailed, match="PermissionError"):
            run_program([other], access=access, limits=LIMITS)
