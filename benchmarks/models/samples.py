"""Calibration inputs of the generated networks: photographs, or real values for networks without image inputs.

Imported in the peers' environments: needs numpy and Pillow only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.photographs import photographs

Reals = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Sample:
    """One sample of a network's input.

    Attributes:
        shape: the dimensions in Keras's order: `H, W, 3` for an image, otherwise `steps, features` or `features`.
    """

    shape: tuple[int, ...]

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def channels_first(self) -> tuple[int, ...]:
        """Returns the shape in the order of ONNX and PyTorch."""
        return (self.shape[2], *self.shape[:2]) if self.is_image else self.shape

    def batch(self, folder: Path, count: int) -> Reals:
        """Returns `[count, *shape]`: normalized photographs of `folder`, or normally distributed values; the same on
        every call.
        """
        if self.is_image:
            return photographs(folder, count, self.shape[0])
        return np.random.default_rng(0).standard_normal((count, *self.shape)).astype(np.float32)

    def batch_channels_first(self, folder: Path, count: int) -> Reals:
        """Returns the same as `[count, *channels_first]`."""
        values = self.batch(folder, count)
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2)) if self.is_image else values


def _image(size: int) -> Sample:
    return Sample((size, size, 3))


SAMPLES: dict[str, Sample] = {
    "resnet18": _image(224),
    "resnet50": _image(224),
    "mobilenet_v2": _image(224),
    # Of MXNet's model zoo, by its names. Its ResNets are of the first version, whose strides are in 1x1 convolutions.
    "resnet18_v1": _image(224),
    "resnet50_v1": _image(224),
    "inceptionv3": _image(299),
    "inception_v3": _image(299),
    "vww": _image(96),
    "deeplab_v3": _image(257),
    "ssdlite": _image(300),
    "ad01": Sample((640,)),
    "lstm": Sample((64, 40)),
    "transformer": Sample((128, 256)),
}
