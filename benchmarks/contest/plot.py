"""Draws the share of the peak that each framework reaches on each model; runs in the environment `plot`:

python -m benchmarks.contest.plot OUTPUT.png < SHARES.json
"""

from __future__ import annotations

import json
import sys

import matplotlib as mpl  # type: ignore[import-not-found]
from matplotlib import pyplot as plt

Shares = dict[str, dict[str, float]]  # percent of the peak by model and framework

# Octet has one strong hue; the peers also differ by shape, for readers who do not see the hues.
_MARKS = {
    "Octet (xnnpack)": ("#d1495b", "o", 70),
    "Octet (litert-reference)": ("#e9a3ac", "o", 45),
    "LiteRT": ("#2e6f95", "s", 32),
    "ONNX Runtime": ("#6b7f3a", "^", 36),
    "OpenVINO": ("#5e548e", "D", 30),
    "PyTorch": ("#c98a1b", "v", 36),
}
_INK, _FAINT = "#333333", "#d9d9d9"


def main() -> None:
    panels: dict[str, Shares] = json.load(sys.stdin)
    mpl.use("Agg")
    plt.rcParams.update({"font.size": 9, "text.color": _INK, "axes.labelcolor": _INK, "ytick.color": _INK})
    models = [model for model in next(iter(panels.values())) if any(shares[model] for shares in panels.values())]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.6 * len(panels) + 2.4, 0.42 * len(models) + 1.7), sharey=True, squeeze=False
    )
    for axis, (title, shares) in zip(axes[0], panels.items(), strict=True):
        _panel(axis, title, shares, models)
    handles, labels = axes[0][0].get_legend_handles_labels()
    axes[0][0].invert_yaxis()  # first model on top; the panels share the axis
    figure.legend(handles[::-1], labels[::-1], ncols=len(labels), loc="upper center", frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.savefig(sys.argv[1], dpi=150)


def _panel(axis: mpl.axes.Axes, title: str, shares: Shares, models: list[str]) -> None:
    rows = range(len(models))
    for row, model in zip(rows, models, strict=True):
        values = shares.get(model, {}).values()
        if values:
            axis.plot([min(values), max(values)], [row, row], color=_FAINT, linewidth=2, zorder=1)
    for name, (color, marker, size) in reversed(_MARKS.items()):
        points = [(shares[model][name], row) for row, model in zip(rows, models, strict=True) if name in shares[model]]
        if points:
            x, y = zip(*points, strict=True)
            axis.scatter(x, y, s=size, color=color, marker=marker, label=name, zorder=2, edgecolors="white")
    axis.set(title=title, xlim=(0, 104), xlabel="% of the measured peak", yticks=list(rows), yticklabels=models)
    axis.grid(axis="x", color=_FAINT, linewidth=0.5)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


if __name__ == "__main__":
    main()
