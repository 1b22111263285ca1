"""Generates the tables of the page that Python defines: the series of the curve of mixtures. `make messages` writes
them.
"""

from __future__ import annotations

import json

from service.quantize.search import plot

SERIES = "service/api/control/page/assets/quantize/series.js"


def generated() -> dict[str, str]:
    """Returns the text of each generated file, by its path."""
    lines = [
        "// The series and titles of the curve of mixtures. `make messages` writes this file from",
        "// service/quantize/search/plot.py, which draws the same curve for `octet quantize --curve`.",
        "",
        "// The name of each series, its colour, and whether a line joins its points.",
        "export const SERIES = {",
        *(f"  {json.dumps(each.name)}: {json.dumps([each.variable, each.is_line])}," for each in plot.SERIES),
        "};",
        "export const [FLOAT, WIDE, BFLOAT16, MIXED] = Object.keys(SERIES);",
        f"export const LAYERS_TITLE = {json.dumps(plot.LAYERS_TITLE)};",
        f"export const LATENCY_TITLE = {json.dumps(plot.LATENCY_TITLE)};",
        f"export const ERROR_TITLE = {json.dumps(plot.ERROR_TITLE, ensure_ascii=False)};",
    ]
    return {SERIES: "\n".join([*lines, ""])}
