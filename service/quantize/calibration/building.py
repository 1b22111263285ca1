"""Builds the models that a calibration runs. This module uses the steps of an ordinary build, in their sandboxes. The
models are not verified or published, because they are not served. This module does not load TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from service.compiler.build.pipeline import make
from service.compiler.build.steps import CompileRequest, Steps
from service.compiler.messages.checking import ArtifactFiles
from service.core.builds.build import Progress
from service.core.builds.numerics import ONNXRUNTIME
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target


def build(
    source: Path, directory: Path, progress: Progress, settings: Settings, shapes: Mapping[str, Sequence[int]]
) -> ArtifactFiles:
    """Builds an ONNX file for this machine.

    Args:
        directory: a new directory in which the built files stay.
        shapes: the shapes of inputs that the file leaves open.

    Raises:
        OctetError: see `compiler.build.pipeline.compile_model`.
    """
    request = CompileRequest(source, digest_of_file(source), parse_target("host"), ONNXRUNTIME, with_shapes(shapes))
    steps = Steps(request, directory, progress, settings)
    signature = steps.imported().signature.batched(1)
    made = make(steps, signature)
    return ArtifactFiles(made.config, made.library, made.constants)
