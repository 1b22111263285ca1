"""The order of the passes that turn an imported model into tensor programs. This module does not load TVM.

The passes are in `passes`. The text of the order is part of every build's key (`toolchain.fingerprint`).
"""

from __future__ import annotations

from service.core.builds.build import Stage

# Maps the name of each pass to the stage of a build that the pass belongs to.
ORDER: dict[str, Stage] = {
    "normalize-types": Stage.SELECT,
    "choose-kernels": Stage.SELECT,
    "batch": Stage.SELECT,
    "move-transposes": Stage.SELECT,
    "decompose": Stage.SELECT,
    "keep-weights": Stage.SELECT,
    "fold-constants": Stage.SELECT,
    "join-biases": Stage.SELECT,
    "fuse-functions": Stage.SELECT,
    "move-pads": Stage.SELECT,
    "make-tables": Stage.SELECT,
    "drop-casts": Stage.SELECT,
    "move-reshapes": Stage.SELECT,
    "move-strides": Stage.SELECT,
    "share-ranges": Stage.SELECT,
    "split-extremes": Stage.SELECT,
    "select": Stage.SELECT,
    "legalize": Stage.LEGALIZE,
    "canonicalize": Stage.CANONICALIZE,
    "fuse": Stage.CODEGEN,
    "schedule": Stage.CODEGEN,
    "lift-constants": Stage.CODEGEN,
    "plan-memory": Stage.CODEGEN,
    "lift-activations": Stage.CODEGEN,
}


def text() -> str:
    """Returns the order in the notation of MLIR's textual pipelines."""
    return f"module({','.join(ORDER)})"
