"""Requests and results of the roles that run models on a data set (`evaluate.child`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.message import Count, Message
from service.compiler.messages.role import Role
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature

PICTURE_FILE, INPUTS_FILE = "picture-{}.jpg", "inputs-{}.bin"


@dataclass(frozen=True)
class DataSet(Message):
    """A data set, in a form that `quantize.calibration.data.Data` accepts.

    Attributes:
        path: the file or folder.
        metadata: how pictures become tensors.
        most: the largest number of inputs that are read.
    """

    path: Path
    metadata: ModelMetadata
    most: Count


@dataclass(frozen=True)
class ArtifactRequest(ArtifactFiles):
    """A request to run an artifact on all inputs. Output number K of all inputs is written to `OUTPUTS_FILE` K."""

    data: DataSet
    threads: int


@dataclass(frozen=True)
class RuntimeRequest(Message):
    """A request to run a model file in the session of its reference runtime that defines `numerics`.

    Attributes:
        source: the model file, in the format `format`.
    """

    source: Path
    format: str
    numerics: str
    signature: ModelSignature
    data: DataSet


@dataclass(frozen=True)
class InputsRequest(Message):
    """A request to write the inputs as tensors, to the files that `INPUTS_FILE` names."""

    signature: ModelSignature
    data: DataSet


@dataclass(frozen=True)
class StoredRequest(Message):
    """A request like `RuntimeRequest`, for a runtime in another environment.

    Attributes:
        inputs: the folder of the files that `InputsRequest` wrote.
        count: the number of inputs.
    """

    source: Path
    format: str
    numerics: str
    signature: ModelSignature
    inputs: Path
    count: Count


@dataclass(frozen=True)
class PicturesRequest(Message):
    """A request to write the inputs with these numbers as pictures, to files that `PICTURE_FILE` names."""

    data: DataSet
    signature: ModelSignature
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class InputsRead(Message):
    """The number of inputs that were read."""

    inputs: Count


RUN_ARTIFACT = Role("evaluate", ArtifactRequest, InputsRead)
RUN_REFERENCE = Role("evaluate_reference", RuntimeRequest, InputsRead)
WRITE_INPUTS = Role("write_inputs", InputsRequest, InputsRead)
RUN_ELSEWHERE = Role("evaluate_elsewhere", StoredRequest, InputsRead)
DRAW_INPUTS = Role("draw_inputs", PicturesRequest, InputsRead)
