"""Layers for tests of matrix tiles."""

from __future__ import annotations

from service.compiler.kernels.layer import Layer, Window
from service.compiler.kernels.layout import Halo, Image
from service.compiler.kernels.libraries import ISAS

NAME = "x86-64-v4+amx"


ISA = ISAS[NAME]


def layer_of(size: int, channels: int, kernel: int) -> Layer:
    pad = kernel // 2
    image = Image(1, size, size, channels, ISA.lanes, Halo(pad, pad, pad, pad))
    return Layer(image, image, Window((kernel, kernel), padding=(pad, pad)))
