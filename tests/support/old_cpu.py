"""A CPU that no target supports. `python -m tests.support.old_cpu COMMAND …` runs `octet COMMAND …` as if on this
CPU.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.core import target

# The part of /proc/cpuinfo that Octet reads, from an Intel Xeon E5-2670 (Sandy Bridge, 2012). It has AVX but not AVX2.
CPUINFO = """\
processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) CPU E5-2670 0 @ 2.60GHz
flags		: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ss ht \
syscall nx rdtscp lm constant_tsc pni pclmulqdq ssse3 cx16 sse4_1 sse4_2 x2apic popcnt aes xsave avx lahf_lm

processor	: 1
flags		: fpu
"""
LACKS = "abm, avx2, bmi1, bmi2, f16c, fma, movbe"


@contextmanager
def on_old_cpu(folder: Path) -> Iterator[None]:
    """Makes this process detect the old CPU instead of the real one."""
    file = folder / "cpuinfo"
    file.write_text(CPUINFO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "_CPUINFO", file)
        patch.setattr(platform, "machine", lambda: "x86_64")
        target.detect_host.cache_clear()
        yield
    target.detect_host.cache_clear()


if __name__ == "__main__":
    from service.cli import main

    with tempfile.TemporaryDirectory() as folder, on_old_cpu(Path(folder)):
        main()
