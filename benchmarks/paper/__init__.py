"""The tables and figures of the papers behind this project, with Octet's results beside theirs.

    python -m benchmarks.paper                    # measures all parts, and writes docs/reference/paper.md
    python -m benchmarks.paper --only accuracy    # measures one part
    python -m benchmarks.paper --only             # measures nothing, and writes the page

`published` contains the papers' numbers, each with its source. `targets`, `accuracy`, `agreement`, `memory` and `speed`
measure. Each measurement becomes a line of `measured.jsonl` (`store`), with its day, machine and versions. `recorded`
reads the times of earlier contests from RESULTS.md. `page` makes the page from both, so a run may be cut into pieces,
and a machine that lacks a runtime keeps the lines that another one measured.
"""
