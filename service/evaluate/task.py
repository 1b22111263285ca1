"""The model, the inputs and the labels of an evaluation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.core.digest import Digest, digest_of_file, parse_digest
from service.core.errors import InvalidInput
from service.core.models.signature import ModelSignature
from service.evaluate.choices import MOST_CASES
from service.evaluate.messages import DataSet
from service.evaluate.metrics import Scorer
from service.evaluate.running import Outputs, Tick
from service.quantize.calibration.data import Data, labels_of, texts_of


@dataclass(frozen=True)
class Subject:
    """The model that is evaluated.

    Attributes:
        title: the model's name for people.
        artifact: the digest of the compiled model.
        run: runs it on all inputs of a data set. The directory is empty and exists as long as the result is used.
    """

    title: str
    artifact: Digest
    target: str
    numerics: str
    signature: ModelSignature
    run: Callable[[DataSet, Path, Tick], Outputs]

    @property
    def is_classifier(self) -> bool:
        """True if the first output has one score for each class: only one of its sizes is not 1."""
        shape = self.signature.outputs[0].shape
        return max(shape, default=1) == math.prod(shape) > 1


@dataclass(frozen=True)
class Task:
    """The inputs, and how outputs are scored.

    Attributes:
        labels: a CSV file (`quantize.calibration.data.labels_of`). None if there are none, or if the archive of inputs
            contains them.
        scorer: scores the outputs. Without one, the first output is that of a classifier.
        classes: the names of the classes, class 0 first; may be empty.
        page: the HTML file to write, or None.
        shown: the largest number of disagreements in that file and in the result.
    """

    data: DataSet
    labels: Path | None = None
    scorer: Scorer | None = None
    classes: Sequence[str] = ()
    page: Path | None = None
    shown: int = MOST_CASES

    @property
    def opened(self) -> Data:
        return Data(self.data.path, self.data.metadata, self.data.most)

    def texts(self) -> list[str | None]:
        """Returns the label of each input as text; an empty list without labels.

        Raises:
            InvalidInput: the file of labels is malformed.
        """
        data = self.opened
        if self.labels is not None and self.scorer is not None:
            return texts_of(self.labels, data)
        classes = data.labels() if self.labels is None else labels_of(self.labels, data)
        return [None if label is None else str(label) for label in classes]

    def names(self, inputs: int) -> list[str]:
        """Returns the name of each picture, or the number of each input."""
        data = self.opened
        return data.pictures()[:inputs] if data.has_pictures else [str(number) for number in range(inputs)]

    def digest(self, inputs: int) -> Digest:
        """Returns the digest of the names and the contents of all files of inputs, of the number of inputs that were
        used, and of the labels.
        """
        data, whole = self.opened, hashlib.sha256()
        names = data.pictures()[:inputs] if data.path.is_dir() else []
        files = [(name, data.path / name) for name in names] or [(data.path.name, data.path)]
        files += [("labels", self.labels)] if self.labels else []
        for name, path in files:
            whole.update(f"{digest_of_file(path)} {name}\n".encode())
        whole.update(f"{inputs} inputs\n".encode())
        return parse_digest(f"sha256:{whole.hexdigest()}")

    def check(self, has_reference: bool) -> None:
        """Raises `InvalidInput` if the results could be compared with nothing. Reads the labels."""
        if not (has_reference or self.scorer or any(label is not None for label in self.texts())):
            raise InvalidInput("there is nothing to compare with", hint="pass --labels, --against or --score")
