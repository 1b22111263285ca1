"""Builds the models that a calibration runs. It uses the steps of an ordinary build, in their sandboxes. The models are
not verified or published, because they are not served. This module does not load TVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.compiler.build.pipeline import make
from service.compiler.build.steps import CompileRequest, Steps
from service.core.artifacts.artifact import ArtifactConfig
from service.core.builds.build import Progress
from service.core.builds.numerics import ONNXRUNTIME
from service.core.builds.options import with_shapes
from service.core.digest import digest_of_file
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.core.target import parse_target


@dataclass(frozen=True)
class Built:
    """A built model that runs on this machine."""

    config: ArtifactConfig
    library: Path
    constants: Path

    @property
    def signature(self) -> ModelSignature:
        return self.config.signature

    @property
    def files(self) -> tuple[Path, Path]:
        return self.library, self.constants

    def to_json(self) -> dict[str, Any]:
        return {"config": self.config.to_json(), "library": str(self.library), "constants": str(self.constants)}

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> Built:
        return Built(ArtifactConfig.from_json(members["config"]), Path(members["library"]), Path(members["constants"]))


def build(
    source: Path, directory: Path, progress: Progress, settings: Settings, shapes: Mapping[str, Sequence[int]]
) -> Built:
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
    return Built(made.config, made.library, made.constants)
