"""Compiled models in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.cache import OciLayout
from service.core.artifacts.artifact import Report
from service.core.artifacts.buffers import aligned_empty
from service.core.digest import Digest
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.runtime import load_model
from service.runtime.bucketed import BucketedModel
from service.runtime.model import Model as _RuntimeModel


def load(path: str | Path, *, threads: int = 0) -> Model:
    """Loads the compiled model in a folder that `octet.compile`, `octet compile` or `octet pull` wrote.

    Args:
        threads: the most threads that compute one call; 0 for one on each core that this process may use.

    Raises:
        NotFound: the folder contains no model.
        CorruptBlob: a file was damaged after it was written.
        Unsupported: the model was compiled for another machine, or by another release.
        UnsafeLibrary: the library in the folder was not written by this compiler.
    """
    return load_from(Path(path), threads)


def load_from(path: Path, threads: int, folder: object = None) -> Model:
    """Does the same as `load`. The model keeps `folder` alive."""
    layout = OciLayout.open(path)
    return Model(load_model(layout, threads), layout, folder)


class Model:
    """A compiled model. One call at a time computes; other threads wait.

    Calling it returns the output for the inputs, which are given in the order of the signature: an array, or a tuple of
    arrays if there are several outputs. Arrays are NumPy arrays with the shapes and types of the signature.
    """

    def __init__(self, model: _RuntimeModel | BucketedModel, layout: OciLayout, folder: object = None) -> None:
        self._model, self._layout = model, layout
        self._folder = folder  # a temporary folder, which is deleted after its last user

    @property
    def digest(self) -> str:
        """The digest of the artifact, which identifies the compiled model."""
        return str(self._model.digest)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, each with `name`, `datatype` and `shape`; -1 is a dimension of any of the compiled sizes."""
        return tuple(self.signature.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in the form of `inputs`."""
        return tuple(self.signature.outputs)

    @property
    def signature(self) -> ModelSignature:
        """The inputs, the outputs, and the state that the model keeps between calls."""
        return self._model.signature

    def __call__(self, *inputs: Array) -> Any:
        """Computes the outputs.

        Raises:
            InvalidTensor: an input does not have the shape or the type in the signature.
        """
        return self._model(*inputs)

    def allocate(self) -> tuple[list[Array], list[Array]]:
        """Returns arrays for `bind`, for all inputs and all outputs. Their values are arbitrary.

        Raises:
            InvalidTensor: the model has several sizes.
        """
        if isinstance(self._model, BucketedModel):
            raise _no_single_size(self.signature)
        inputs, outputs = (
            [aligned_empty(each.shape, each.dtype) for each in specs] for specs in (self.inputs, self.outputs)
        )
        return inputs, outputs

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Makes calls without arguments read `inputs` and write `outputs`, without checks and copies.

        Args:
            inputs, outputs: arrays in the order of the signature, C-ordered, and aligned to 64 bytes, such as those of
                `allocate`.

        Raises:
            InvalidTensor: an array does not fit the signature or is not aligned; or the model has several sizes.
        """
        if isinstance(self._model, BucketedModel):
            raise _no_single_size(self.signature)
        self._model.bind(inputs, outputs)

    def report(self, kind: str = "numerics") -> dict[str, Any] | None:
        """Returns a report of the build, or None if the artifact has none.

        Args:
            kind: `numerics` (the comparison with the reference runtime), `coverage` (how each operator is computed),
                `facts` (what is known of the model file) or `profile`.
        """
        data = self._layout.attached(Digest(self.digest), Report[kind.upper()])
        found: dict[str, Any] | None = json.loads(data) if data else None
        return found

    def __repr__(self) -> str:
        def listed(specs: Sequence[TensorSpec]) -> str:
            return ", ".join(f"{each.name}: {each.datatype}{list(each.shape)}" for each in specs)

        return f"<octet.Model {self.digest[:19]} ({listed(self.inputs)}) -> ({listed(self.outputs)})>"


def _no_single_size(signature: ModelSignature) -> Exception:
    from service.core.errors import InvalidTensor

    name = signature.inputs[0].name
    return InvalidTensor("a model that was compiled for several sizes cannot be bound", tensor=name, hint="call it")
