"""Runs passes on a QNN graph, text to text, as `mlir-opt` and `xdsl-opt` do.

    python -m tools.opt model.tflite > model.qnn
    python -m tools.opt --pass drop-casts,move-strides model.qnn
    python -m tools.opt --dialect mine.py --pass mine.fold model.qnn

Reads a model file of any format, or the complete text of a graph (`service.compiler.qnn.printer`). Writes the text of
the result to standard output.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from service.compiler.dialects import loading
from service.compiler.importers.auto import import_model
from service.compiler.lowering.passes import graph_passes, run_graph_passes
from service.compiler.qnn.parser import parse_module
from service.compiler.qnn.printer import complete_text_of, text_of
from service.core.builds import dialects
from service.core.builds.numerics import LITERT_REFERENCE, MODES
from service.core.errors import OctetError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.opt", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("file", type=Path, help="a model file, or the text of a graph (.qnn)")
    parser.add_argument("--pass", dest="passes", default="", help=f"passes in order: {', '.join(graph_passes())}")
    parser.add_argument(
        "--numerics", choices=MODES, default=LITERT_REFERENCE, help="the mode that passes must not change"
    )
    parser.add_argument("--target", default="host", help="the target that passes compile for")
    parser.add_argument("--short", action="store_true", help="leave out the values of constants, for reading only")
    parser.add_argument("--dialect", type=Path, action="append", default=[], help="a file that extends the compiler")
    given = parser.parse_args(arguments)
    names = [name for name in given.passes.split(",") if name]
    try:
        if given.dialect:
            dialects.configure(given.dialect)
        loading.load_configured()
        data = given.file.read_bytes()
        module = parse_module(data.decode()) if given.file.suffix == ".qnn" else import_model(data).module
        result = run_graph_passes(module, names, given.numerics, given.target)
    except (OctetError, OSError, UnicodeDecodeError) as error:
        print(f"{given.file}: {error}", file=sys.stderr)
        return 1
    print(text_of(result) if given.short else complete_text_of(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
