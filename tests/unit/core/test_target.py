"""Which targets run on which machine, by its /proc/cpuinfo."""

from __future__ import annotations

import pytest

from service.core.errors import UnknownTarget
from service.core.target import TARGETS, Host, parse_cpuinfo, parse_target
from tests.support.old_cpu import CPUINFO, LACKS


def test_the_flags_are_those_of_the_first_cpu() -> None:
    host = parse_cpuinfo(CPUINFO, "x86_64")
    assert {"avx", "sse4_2"} <= host.features
    assert "avx2" not in host.features
    assert host.model_name.startswith("Intel(R) Xeon(R) CPU E5-2670")


def test_on_arm_they_are_called_features() -> None:
    assert parse_cpuinfo("Features\t: fp asimd asimddp\n", "aarch64").target.name == "aarch64+dotprod"


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_machine_that_has_what_a_target_needs_runs_it(target: object) -> None:
    target = parse_target(str(target))
    host = Host(target.architecture, target.features)
    assert target.runs_on(host)
    assert host.best is target
    assert host.missing == frozenset()


def test_a_machine_that_no_target_runs_on_says_what_it_lacks() -> None:
    host = parse_cpuinfo(CPUINFO, "x86_64")
    assert host.best is None
    assert ", ".join(sorted(host.missing)) == LACKS
    with pytest.raises(UnknownTarget, match=f"can run none of the targets: for x86-64-v3, the closest, .* {LACKS}"):
        _ = host.target


def test_a_machine_of_another_architecture() -> None:
    host = Host("riscv64", frozenset())
    assert host.best is None
    assert host.why_none.startswith("this riscv64 host can run none of the targets")
