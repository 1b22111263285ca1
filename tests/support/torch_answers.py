"""Runs a model in PyTorch and stores its outputs.

Tests run this script in the environment of the benchmarks, which has PyTorch. They never import it.

python -m tests.support.torch_answers ENGINE MODEL.pt INPUTS.npz OUTPUTS.npz
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import torch  # type: ignore[import-not-found]


def main(engine: str, model: str, inputs: str, outputs: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.backends.quantized.engine = engine
    loaded = torch.jit.load(model)
    with np.load(inputs) as given, torch.no_grad():
        answers = [loaded(torch.from_numpy(given[f"arr_{index}"])).numpy() for index in range(len(given.files))]
    np.savez(outputs, *answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
