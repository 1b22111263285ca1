"""Packed parameters: the weights and bias of a quantized convolution or linear layer in TorchScript.

The layouts of packed parameters are those of `serialize_conv` in aten/src/ATen/native/quantized/cpu/fbgemm_utils.cpp
    (versions 2 and 3), and `LinearPackedParamsBase` in the same file. The file does not depend on the memory layout
    that an engine uses for the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.unpickler import Object
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

CONV2D, LINEAR = "Conv2dPackedParamsBase", "LinearPackedParamsBase"
CLASSES = "__torch__.torch.classes."  # PyTorch's own classes, which the archive's code does not define
_QUANTIZED, _RECURRENT = f"{CLASSES}quantized", f"{CLASSES}rnn"
_LEFT_OUT = "leave this layer out of the model, or in float"
_TRANSPOSED = 1  # the only flag


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights `[O, I / groups, KH, KW]` or `[O, I]` with their quantization, and a float32 bias.

    Attributes:
        stride, padding, dilation: each for rows and columns. A linear layer does not use them.
    """

    weight: Tensor
    bias: Array | None = field(default=None, repr=False)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(frozen=True, eq=False)
class Cell:
    """The weights of one direction of an LSTM or GRU layer, whose activations are quantized at run time.

    Attributes:
        of_input: `[gates * hidden, inputs]`, with the bias that is added to the products of the input.
        of_state: `[gates * hidden, hidden]`, with the bias that is added to the products of the state.
        reduced: true if activations have 7 bits.
    """

    of_input: Packed
    of_state: Packed
    reduced: bool


def unpacked(module: str, kind: str, state: Any) -> Packed | Cell:
    """Returns the parameters that a pickle contains, as an object of class `kind` in `module`.

    Raises:
        MalformedModel: `state` is not a valid state of such an object.
        Unsupported: the object belongs to another type of layer.
    """
    if module == _RECURRENT and kind == "CellParamsBase":
        return _cell(state)
    if module != _QUANTIZED:
        whole = f"{module.removeprefix(CLASSES)}.{kind}"[:100]
        raise Unsupported(f"objects of PyTorch's class {whole!a} cannot be compiled", hint=_LEFT_OUT)
    match kind, state:
        case "LinearPackedParamsBase", (weight, bias):
            return linear(weight, bias)
        case "Conv2dPackedParamsBase", (("2" | "3"), [Tensor(data=config), weight, *bias], [*optional]):
            return _convolution(config.tolist(), weight, [*bias, *optional])
        case "Conv2dPackedParamsBase", (int(), [int(), *_] as config, [None | Tensor(), weight, *bias]):
            return _convolution(config, weight, bias)
        case (("LinearPackedParamsBase" | "Conv2dPackedParamsBase"), _):
            raise _misfit(kind)
        case _:
            raise Unsupported(f"parameters of the kind {kind[:100]!a} cannot be compiled", hint=_LEFT_OUT)


def _cell(state: Any) -> Cell:
    """Returns the parameters in the state that `QuantizedCellParamsDynamic::__getstate__` writes
    (aten/src/ATen/native/RNN.cpp). The packed weights contain the biases too.
    """
    match state:
        case ("quantized_dynamic", [_, _], [], [int(reduced)], [Object() as of_input, Object() as of_state]):
            parts = [_linear_of(each) for each in (of_input, of_state)]
        case (str(kind), *_) if kind != "quantized_dynamic":
            raise Unsupported(
                f"the parameters {kind[:100]!a} of an LSTM or GRU cannot be compiled",
                hint="quantize_dynamic(model, {torch.nn.LSTM}, dtype=torch.qint8); or leave it in float",
            )
        case _:
            raise _misfit("CellParamsBase")
    return Cell(parts[0], parts[1], bool(reduced))


def _linear_of(value: Object) -> Packed:
    if (value.kind.module, value.kind.name) != (_QUANTIZED, LINEAR):
        raise _misfit("CellParamsBase")
    packed = unpacked(_QUANTIZED, LINEAR, value.state)
    assert isinstance(packed, Packed)
    return packed


def linear(weight: Any, bias: Any) -> Packed:
    """Returns the parameters of `quantized::linear_prepack`."""
    _check(LINEAR, weight, bias, rank=2)
    return Packed(weight, None if bias is None else bias.data)


def conv2d(weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Packed:
    """Returns the parameters of `quantized::conv2d_prepack`."""
    _check(CONV2D, weight, bias, rank=4)
    if type(groups) is not int or groups < 1:
        raise _misfit(CONV2D)
    steps, around, apart = _pair(stride, 1), _pair(padding, 0), _pair(dilation, 1)
    return Packed(weight, None if bias is None else bias.data, steps, around, apart, groups)


def conv1d(weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any) -> Packed:
    """Returns the parameters of `quantized::conv1d_prepack`: a convolution of images with one row. PyTorch packs it in
    the same way (`quantized::conv1d_prepack` in aten/src/ATen/native/quantized/cpu/qconv_prepack.cpp).
    """
    _check(CONV2D, weight, bias, rank=3)
    steps, around, apart = (
        (default, *(each if isinstance(each, list | tuple) else [each]))
        for default, each in ((1, stride), (0, padding), (1, dilation))
    )
    return conv2d(Tensor(weight.data[:, :, None], weight.quantization), bias, steps, around, apart, groups)


def _convolution(config: list[Any], weight: Any, bias: list[Any]) -> Packed:
    """Returns the parameters of a convolution. `config` contains the number of dimensions, then stride, padding,
    dilation and output padding, each for all dimensions, then groups and flags.
    """
    if len(config) != 11 or config[0] != 2:
        raise Unsupported(f"convolutions with {config[0] if config else 'no'} dimensions cannot be compiled")
    if config[10] & _TRANSPOSED or any(config[7:9]):
        raise Unsupported("PyTorch's transposed convolutions cannot be compiled")
    given = [tensor for tensor in bias if tensor is not None]
    return conv2d(weight, given[0] if given else None, config[1:3], config[3:5], config[5:7], config[9])


def _check(kind: str, weight: Any, bias: Any, rank: int) -> None:
    if not isinstance(weight, Tensor) or weight.quantization is None or weight.data.ndim != rank:
        raise _misfit(kind)
    if weight.data.dtype != np.int8:
        raise Unsupported(f"weights of {weight.data.dtype.name} cannot be compiled")
    if weight.quantization.axis not in (None, 0):
        raise Unsupported("weights that are quantized along an axis other than their filters cannot be compiled")
    if 0 in weight.data.shape:
        raise _misfit(kind)
    if bias is not None:
        fits = isinstance(bias, Tensor) and bias.data.dtype == np.float32 and bias.data.shape == weight.data.shape[:1]
        if not fits or not np.isfinite(bias.data).all():
            raise _misfit(kind)


def _pair(value: Any, least: int) -> tuple[int, int]:
    items = tuple(value) if isinstance(value, list | tuple) else ()
    if len(items) != 2 or not all(type(item) is int and least <= item < 1 << 16 for item in items):
        raise _misfit(CONV2D)
    return items


def _misfit(kind: str) -> MalformedModel:
    return MalformedModel(f"the archive has a {kind} whose parts do not fit together")
