"""Draws each server's rate and latency; runs in the environment `plot`:

python -m benchmarks.serving.report.plot OUTPUT.png < BARS.json
"""

from __future__ import annotations

import json
import sys

import matplotlib as mpl  # type: ignore[import-not-found]
from matplotlib import pyplot as plt

_OCTET, _PEER, _INK, _FAINT = "#d1495b", "#2e6f95", "#333333", "#d9d9d9"


def main() -> None:
    panels: dict[str, dict[str, list[float]]] = json.load(sys.stdin)
    mpl.use("Agg")
    plt.rcParams.update({"font.size": 9, "text.color": _INK, "axes.labelcolor": _INK, "ytick.color": _INK})
    heights = [len(bars) for bars in panels.values()]
    figure, axes = plt.subplots(
        len(panels), 2, figsize=(10.5, 0.34 * sum(heights) + 1.1 * len(panels)), squeeze=False, height_ratios=heights
    )
    for row, (model, bars) in zip(axes, panels.items(), strict=True):
        names, colors = list(bars), [_OCTET if name == "Octet" else _PEER for name in bars]
        row[0].barh(names, [values[0] for values in bars.values()], color=colors)
        row[0].set_title(model, loc="left")
        row[0].set_xlabel("responses per second, 8 connections")
        for index, (values, color) in enumerate(zip(bars.values(), colors, strict=True)):
            row[1].plot(values[1:], [index, index], color=color, linewidth=2)
            row[1].plot(values[1], index, "o", color=color)
            row[1].plot(values[2], index, "|", color=color, markersize=10)
        row[1].set(yticks=range(len(names)), yticklabels=[], xlabel="ms at 70 % of that: p50 to p99", xlim=(0, None))
        for axis in row:
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.grid(axis="x", color=_FAINT, linewidth=0.5)
            axis.set_axisbelow(True)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[1], dpi=130)


if __name__ == "__main__":
    main()
