"""The manufacturer's figures for a core, which show whether a measured peak is possible."""

from __future__ import annotations

import re

# Vector multiply-accumulates that a core starts per cycle, by register. AMD, Software Optimization Guide for the Zen 4
# (57647) and the Zen 5 (58455) Microarchitecture: two pipes multiply; Zen 4's are 256 bits wide.
_ZEN4, _ZEN5 = {"ymm": 2, "zmm": 1}, {"ymm": 2, "zmm": 2}
_TOLERANCE = 1.03  # allows for the error of the measured clock


def starts_per_cycle(cpuinfo: str, register: str) -> int | None:
    """Returns the figure for the text of Linux's /proc/cpuinfo; None for a CPU that the table lacks."""
    vendor, family, model = (
        found[1] if (found := re.search(rf"^{key}\s*: (\w+)$", cpuinfo, re.MULTILINE)) else ""
        for key in ("vendor_id", "cpu family", "model")
    )
    match vendor, family:
        case "AuthenticAMD", "25" if "avx512_vnni" in cpuinfo:
            return _ZEN4.get(register)
        case "AuthenticAMD", "26" if model in ("2", "17", "68"):  # servers and desktops; laptops have narrower pipes
            return _ZEN5.get(register)
    return None


def is_possible(measured_per_cycle: float, per_cycle: int | None) -> bool:
    """Returns false if a loop was faster than the core can be, because the compiler dropped instructions."""
    return per_cycle is None or measured_per_cycle <= _TOLERANCE * per_cycle
