"""One run of one artifact, for a tool that looks at it: `python -m benchmarks.gpu.once ARTIFACT`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.gpu.samples import inputs_of
from service.runtime.loading import load

if __name__ == "__main__":
    model = load(Path(sys.argv[1]))
    model.run(inputs_of(model.signature))
