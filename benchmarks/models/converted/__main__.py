"""Makes and checks TFLite files of one layer each.

In an environment with TensorFlow, and with `ai-edge-quantizer` for its recipes:

    python -m benchmarks.models.converted make FOLDER                # every form of every layer
    python -m benchmarks.models.converted make FOLDER --only 16x8    # one form

In Octet's environment:

    python -m benchmarks.models.converted rate FOLDER    # which files LiteRT runs, and which of them Octet runs alike
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["make", "rate"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="the form of the files: int8, 16x8, dynamic, … or a recipe")
    arguments = parser.parse_args()
    if arguments.action == "make":
        from benchmarks.models.converted.convert import convert_all

        convert_all(arguments.folder, arguments.only)
    else:
        from benchmarks.models.converted.rate import rate_all

        rate_all(sorted(arguments.folder.glob(f"*{arguments.only}.tflite")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
