"""Reports which of the networks in a folder Octet compiles, and whether their results equal MXNet's.

    python -m scripts.mxnet_rate FOLDER [NAME...]

`scripts/make_mxnet_networks.py` writes the networks. The oracle computes the results, so nothing is compiled. The
largest difference is printed as a multiple of the largest magnitude in the output; `equal` means bit for bit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from service.compiler.importers.auto import import_model
from service.compiler.importers.mxnet.package import SYMBOL_SUFFIX, pack_files
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import MXNET_ONEDNN
from service.core.errors import OctetError


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="networks to compare, in place of all")
    given = parser.parse_args()
    symbols = sorted(given.folder.glob(f"*{SYMBOL_SUFFIX}"))
    named = {symbol.name.removesuffix(SYMBOL_SUFFIX): symbol for symbol in symbols}
    chosen = {name: symbol for name, symbol in named.items() if not given.names or name in given.names}
    results = {name: result_of(symbol) for name, symbol in chosen.items()}
    for name, result in results.items():
        print(f"{name:24} {result}")
    imported = [result for result in results.values() if not result.startswith("refused")]
    equal = [result for result in imported if result == "equal"]
    print(f"{len(imported)} of {len(results)} are imported, and {len(equal)} equal MXNet bit for bit")


def result_of(symbol: Path) -> str:
    """Returns `equal`, a difference, or the reason for which the network at `symbol` is refused."""
    saved = np.load(symbol.with_name(symbol.name.replace(SYMBOL_SUFFIX, ".npz")))
    inputs = saved["inputs"]
    expected = [saved["outputs"], *(saved[name] for name in saved if name.startswith("output_"))]
    try:
        imported = import_model(pack_files(symbol), shapes={"": inputs.shape[1:]})
        answers = oracle.run_all(imported.module, get_mode(MXNET_ONEDNN), [[sample] for sample in inputs])
    except OctetError as error:
        return f"refused: {error}"
    stacked = [np.stack([answer[at] for answer in answers]) for at in range(len(expected))]
    if any(ours.shape != theirs.shape for ours, theirs in zip(stacked, expected, strict=True)):
        return f"differs: shapes {[each.shape[1:] for each in stacked]}, not {[each.shape[1:] for each in expected]}"
    if all(np.array_equal(ours, theirs) for ours, theirs in zip(stacked, expected, strict=True)):
        return "equal"
    largest = max(
        float(np.abs(ours - theirs).max()) / max(float(np.abs(theirs).max()), 1e-30)
        for ours, theirs in zip(stacked, expected, strict=True)
    )
    return f"differs by {largest:.2g}"


if __name__ == "__main__":
    main()
