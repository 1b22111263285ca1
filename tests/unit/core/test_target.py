"""Tests of which targets a machine runs, according to the features that Linux reports."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest
import ziglang

from service.core import target
from service.core.errors import UnknownTarget
from service.core.target import TARGETS, Host, hwcap_features, parse_cpuinfo, parse_target
from tests.support.old_cpu import CPUINFO, LACKS

BFLOAT16 = "x86-64-v4+vnni+bf16"
_ZIG = Path(ziglang.__file__).parent


def test_the_flags_are_those_of_the_first_cpu() -> None:
    host = parse_cpuinfo(CPUINFO, "x86_64")
    assert {"avx", "sse4_2"} <= host.features
    assert "avx2" not in host.features
    assert host.model_name.startswith("Intel(R) Xeon(R) CPU E5-2670")


def _auxiliary_values(*names: str) -> dict[int, int]:
    """Returns AT_HWCAP and AT_HWCAP2 of an aarch64 CPU with these features, from the bits in the kernel's header."""
    text = (_ZIG / "lib/libc/include/aarch64-linux-any/asm/hwcap.h").read_text()
    bits = {
        (26 if found[1] else 16, found[2].lower()): 1 << int(found[3])
        for found in re.finditer(r"#define HWCAP(2?)_(\w+)\s+\(1(?:UL)? << (\d+)\)", text)
    }
    return {entry: sum(bit for (of, name), bit in bits.items() if of == entry and name in names) for entry in (16, 26)}


@pytest.mark.parametrize(
    "features",
    [
        {"fp"},
        {"fp", "asimd", "aes", "crc32"},  # Cortex-A53
        {"fp", "asimd", "atomics", "asimdhp", "asimdrdm", "lrcpc", "dcpop", "asimddp", "ssbs"},  # Neoverse N1.
        {"asimd", "asimddp", "sve", "sve2", "svei8mm", "i8mm", "bf16", "pacg", "dcpodp", "mte3", "sme"},
    ],
)
def test_on_arm_features_come_from_the_auxiliary_vector(features: set[str]) -> None:
    assert hwcap_features("aarch64", _auxiliary_values(*features).__getitem__) == features


def test_on_risc_v_features_are_letters_of_extensions() -> None:
    """The bits are those that qemu-riscv64 reports for `-cpu rv64,v=true`."""
    assert hwcap_features("riscv64", {16: 0x20112D}.__getitem__) == set("imafdcv")


def test_an_arm_host_ignores_the_features_in_cpuinfo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under an emulator, /proc/cpuinfo describes the machine that the emulator runs on."""
    (tmp_path / "cpuinfo").write_text(CPUINFO + "\nModel\t: Raspberry Pi 5 Model B Rev 1.0\n")
    monkeypatch.setattr(target, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(target, "_auxiliary_value", _auxiliary_values("asimd", "asimddp").__getitem__)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    target.detect_host.cache_clear()
    try:
        host = target.detect_host()
    finally:
        target.detect_host.cache_clear()
    assert host.target.name == "aarch64+dotprod"
    assert host.model_name == "Raspberry Pi 5 Model B Rev 1.0"


def test_a_target_that_adds_only_bfloat16_is_not_the_default() -> None:
    needed = parse_target(BFLOAT16)
    host = Host(needed.architecture, needed.features)
    assert str(host.best) == "x86-64-v4+vnni"
    assert needed in host.targets


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_machine_that_has_what_a_target_needs_runs_it(target: object) -> None:
    needed = parse_target(str(target))
    host = Host(needed.architecture, needed.features)
    assert needed.runs_on(host)
    if needed.device == "cpu" and needed.name != BFLOAT16:
        assert host.best is needed
        assert host.missing == frozenset()


def test_host_is_never_a_gpu_target() -> None:
    """A user who wants the GPU has to name its target."""
    v3 = parse_target("x86-64-v3")
    host = Host("x86_64", v3.features | {"sm_80", "sm_86", "sm_89"})
    assert host.best is v3
    gpus = {target.name: target.runs_on(host) for target in TARGETS if target.device == "cuda"}
    assert [name for name, runs in gpus.items() if runs] == [
        *("cuda-sm_89", "cuda-sm_86", "cuda-sm_80"),
        *("cuda-sm_80+sm_90", "cuda-sm_75+sm_80+sm_90"),
    ]
    assert parse_target("cuda-sm_90").missing_on(host) == {"sm_90"}


def test_gpu_targets_are_preferred_for_serving() -> None:
    host = Host("x86_64", parse_target("x86-64-v4").features | {"sm_75"})
    assert [target.name for target in host.targets] == [
        *("cuda-sm_75", "cuda-sm_75+sm_80+sm_90"),
        *("x86-64-v4", "x86-64-v3"),
    ]


@pytest.mark.parametrize(("capability", "runs"), [("sm_61", False), ("sm_80", True), ("sm_90", True)])
def test_code_for_several_gpus_needs_one_of_them(capability: str, runs: bool) -> None:
    target = parse_target("cuda-sm_80+sm_90")
    host = Host("x86_64", frozenset({"avx2", capability}))
    assert target.runs_on(host) is runs
    assert target.missing_on(host) == (frozenset() if runs else {"sm_80", "sm_90"})


def test_a_machine_without_a_target_lists_the_missing_features() -> None:
    host = parse_cpuinfo(CPUINFO, "x86_64")
    assert host.best is None
    assert ", ".join(sorted(host.missing)) == LACKS
    with pytest.raises(UnknownTarget, match=f"can run none of the targets: for x86-64-v3, the closest, .* {LACKS}"):
        _ = host.target


def test_a_machine_of_another_architecture_has_no_target() -> None:
    host = Host("riscv64", frozenset())
    assert host.best is None
    assert host.why_none.startswith("this riscv64 host can run none of the targets")
