import platform

import pytest

from service.compiler.sandbox import landlock, seccomp
from service.compiler.sandbox.check import check, require
from service.core.errors import SandboxUnavailable


def test_the_check_reports_landlock_and_seccomp() -> None:
    findings = check()
    assert [finding.name for finding in findings] == ["landlock", "seccomp"]
    assert all(finding.detail for finding in findings)
    assert all(finding.available != bool(finding.lost) for finding in findings)


@pytest.fixture
def unknown_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")


@pytest.mark.usefixtures("unknown_architecture")
def test_an_architecture_without_a_table_has_no_sandbox() -> None:
    assert [finding.available for finding in check()] == [False, False]
    assert landlock.abi() == 0
    assert not seccomp.is_available()


@pytest.mark.usefixtures("unknown_architecture")
def test_a_missing_feature_is_an_error_unless_allowed() -> None:
    with pytest.raises(
        SandboxUnavailable, match=r"no landlock .*no system call table for riscv64.* no seccomp"
    ) as caught:
        require()
    assert "OCTET_ALLOW_UNSANDBOXED=1" in str(caught.value.hint)
    require(allow_unsandboxed=True)
