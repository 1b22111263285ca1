"""Estimates for ARM's kernels without ARM hardware: the hot loops of models' kernels on LLVM's models of cores.

    python -m benchmarks.arm MODEL…                          # prints tables
    python -m benchmarks.arm --write MODEL…                  # and puts them into ARM.md
    python -m benchmarks.arm --beside WHEEL MODEL…           # and XNNPACK's loops, of ai-edge-litert's wheel

Needs the Debian package `llvm-19`. Each model is compiled on this machine for each of ARM's targets. For each kernel
that multiplies, the innermost loop with the most products is simulated; a model's figure is the mean over its kernels,
weighted by their multiply-accumulates. All data is assumed to be in the first-level cache.
"""

from __future__ import annotations

import argparse
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.arm.assembly import PRODUCTS, Loop, loops
from benchmarks.arm.kernels import Hot, hot_loops
from benchmarks.arm.pipelines import bound, cycles
from benchmarks.harness.artifacts import compile_model
from benchmarks.harness.tables import table, write_section

# The cores that LLVM 19 models and that have the target's instructions. The Cortex-A53 and A55 are in-order cores.
CORES: dict[str, Sequence[str]] = {
    "aarch64": ("cortex-a53", "cortex-a72", "neoverse-n1"),
    "aarch64+dotprod": ("cortex-a55", "neoverse-n1", "apple-m1"),
    "aarch64+i8mm": ("neoverse-v1", "neoverse-n2"),
}
_FEWEST = 8  # A loop of XNNPACK with fewer product instructions is a remainder loop, and is left out.
_MOST = 60  # The number of XNNPACK's loops that are simulated, largest first.


@dataclass(frozen=True)
class Figures:
    """Weighted figures of some loops on a core.

    Attributes:
        share: the reached share of the core's highest possible rate of products.
        macs: multiply-accumulates per cycle.
    """

    share: float
    least: float
    macs: float

    @staticmethod
    def of(core: str, hot: Sequence[Hot]) -> Figures:
        whole = sum(it.macs for it in hot)
        shares = [bound(core, it.loop) / cycles(core, it.loop) for it in hot]
        passes = sum(it.macs / it.loop.macs * cycles(core, it.loop) for it in hot)
        return Figures(
            sum(it.macs * share for it, share in zip(hot, shares, strict=True)) / whole, min(shares), whole / passes
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--beside", type=Path, help="a wheel of ai-edge-litert for aarch64")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    parts = [_ours(arguments.models)]
    if arguments.beside:
        parts.append(_best_xnnpack_loops(arguments.beside))
    text = "\n\n".join(parts)
    print(text)
    if arguments.write:
        write_section("ARM.md", "estimates", text)


def _ours(models: Sequence[Path]) -> str:
    rows = []
    for model in models:
        for target, cores in CORES.items():
            hot = _compiled(model, target)
            for family in sorted({it.family for it in hot}):
                own = [it for it in hot if it.family == family]
                for core in cores:
                    rows.append([model.stem, target, core, *_row(family, core, own)])
    columns = ["model", "target", "core", "family", "kernels", "of the bound", "least", "MACs a cycle"]
    return table([*columns, "products a load", "spills"], rows)


def _row(family: str, core: str, hot: Sequence[Hot]) -> list[str]:
    figures = Figures.of(core, hot)
    products, loads = sum(sum(it.loop.products.values()) for it in hot), sum(it.loop.loads for it in hot)
    row = [family, str(len(hot)), f"**{figures.share:.0%}**", f"{figures.least:.0%}", f"{figures.macs:.1f}"]
    return [*row, f"{products / max(1, loads):.1f}", str(sum(it.loop.spills for it in hot))]


def _compiled(model: Path, target: str) -> list[Hot]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "artifact")
        compile_model(model, folder, "--target", target)
        return hot_loops(folder)


def _best_xnnpack_loops(wheel: Path) -> str:
    """Returns the best loop of each instruction in the library, whose functions have no names."""
    found, rows = _loops_of(wheel), []
    for target, cores in CORES.items():
        for name in (it for it in PRODUCTS if _has(target, it)):
            own = [it for it in found if it.products[name] == max(it.products.values()) >= _FEWEST]
            own = sorted(own, key=lambda it: -it.macs)[:_MOST]
            for core in cores if own else ():
                best = max(own, key=lambda it: it.macs / cycles(core, it))
                share, macs = bound(core, best) / cycles(core, best), best.macs / cycles(core, best)
                rows.append([core, name, str(len(own)), f"{share:.0%}", f"{macs:.1f}"])
    return table(["core", "product", "XNNPACK's loops", "of the bound, the best", "its MACs a cycle"], rows)


def _has(target: str, name: str) -> bool:
    if name.endswith("mmla") or name in ("usdot", "sudot"):
        return target == "aarch64+i8mm"
    return "dot" not in name or target != "aarch64"


def _loops_of(wheel: Path) -> list[Loop]:
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        libraries = [Path(archive.extract(name, folder)) for name in archive.namelist() if name.endswith(".so")]
        return [loop for library in libraries for loop in loops(library)]


if __name__ == "__main__":
    main()
