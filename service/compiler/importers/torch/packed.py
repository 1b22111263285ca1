"""Packed parameters: the weights and bias of a quantized convolution or linear layer in TorchScript.

The layouts of packed parameters are those of `serialize_conv` in aten/src/ATen/native/quantized/cpu/fbgemm_utils.cpp
    (versions 2 and 3), and `LinearPackedParamsBase` in the same file. The file does not depend on the memory layout
    that an engine uses for the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from service.compiler.importers.torch.tensors import Rows, Tensor
from service.compiler.importers.torch.unpickler import Object
from service.core.errors import MalformedModel, Unsupported
from service.core.models.arrays import Array

CONV2D, LINEAR = "Conv2dPackedParamsBase", "LinearPackedParamsBase"
_CONVOLUTIONS = (CONV2D, "Conv3dPackedParamsBase")
CLASSES = "__torch__.torch.classes."  # PyTorch's own classes, which the archive's code does not define
_QUANTIZED, _RECURRENT = f"{CLASSES}quantized", f"{CLASSES}rnn"
_LEFT_OUT = "leave this layer out of the model, or in float"
_TRANSPOSED = 1  # the only flag


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights `[O, I / groups, KH, KW]`, `[O, I / groups, KD, KH, KW]` or `[O, I]` with their quantization, and a
    float32 bias. The weights of a transposed convolution begin with `[I, O / groups]`.

    Attributes:
        stride, padding, dilation, output_padding: each for all dimensions of an image. A linear layer does not use
            them.
        is_row: true for a convolution of rows `[N, C, L]`, whose kernel has one row.
    """

    weight: Tensor
    bias: Array | None = field(default=None, repr=False)
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    is_transposed: bool = False
    output_padding: tuple[int, ...] = (0, 0)
    is_row: bool = False


@dataclass(frozen=True, eq=False)
class Cell:
    """The weights of one direction of a recurrent layer: real, or for activations that are quantized at run time.

    Attributes:
        of_input: `[gates * hidden, inputs]`, with the bias that is added to the products of the input.
        of_state: `[gates * hidden, hidden]`, with the bias that is added to the products of the state.
        reduced: true if activations have 7 bits.
    """

    of_input: Packed
    of_state: Packed
    reduced: bool


def unpacked(module: str, kind: str, state: Any) -> Packed | Cell | Rows:
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
        case "EmbeddingPackedParamsBase", (int(), [Rows() as rows], [], [int()]):
            return rows
        case str(name), (("2" | "3"), [Tensor(data=config), weight, *bias], [*optional]) if name in _CONVOLUTIONS:
            return _convolution(config.tolist(), weight, [*bias, *optional])
        case str(name), (int(), [int(), *_] as config, [None | Tensor(), weight, *bias]) if name in _CONVOLUTIONS:
            return _convolution(config, weight, bias)
        case str(name), _ if name in (*_CONVOLUTIONS, LINEAR):
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
    """Returns the parameters of `quantized::linear_prepack`; or those of `linear_prepack_fp16`, whose weights are real
    numbers that are rounded to float16.
    """
    if isinstance(weight, Tensor) and weight.quantization is None and weight.data.dtype == np.float32:
        fits = weight.data.ndim == 2 and (bias is None or _is_row(bias, len(weight.data)))
        if not fits:
            raise _misfit(LINEAR)
        most = np.float32(np.finfo(np.float16).max)
        half = np.clip(weight.data, -most, most).astype(np.float16).astype(np.float32)
        return Packed(Tensor(half), None if bias is None else bias.data)
    _check(LINEAR, weight, bias, rank=2)
    return Packed(weight, None if bias is None else bias.data)


def convolution(
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    *,
    rank: int = 4,
    output_padding: Any = None,
) -> Packed:
    """Returns the parameters of `quantized::conv2d_prepack`, or `quantized::conv3d_prepack` with rank 5. With an
    `output_padding`, returns those of a transposed convolution.
    """
    is_transposed = output_padding is not None
    if type(groups) is not int or groups < 1:
        raise _misfit(CONV2D)
    _check(CONV2D, weight, bias, rank, groups if is_transposed else None)
    steps, around, apart, more = (
        _each(value, least, rank - 2)
        for value, least in ((stride, 1), (padding, 0), (dilation, 1), (output_padding or [0] * (rank - 2), 0))
    )
    if is_transposed and weight.data.shape[0] % groups:
        raise _misfit(CONV2D)
    moved = None if bias is None else bias.data
    return Packed(weight, moved, steps, around, apart, groups, is_transposed, more)


def conv1d(
    weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, *, output_padding: Any = None
) -> Packed:
    """Returns the parameters of `quantized::conv1d_prepack`: a convolution of images with one row. PyTorch packs it in
    the same way (`quantized::conv1d_prepack` in aten/src/ATen/native/quantized/cpu/qconv_prepack.cpp).
    """
    if not isinstance(weight, Tensor) or weight.data.ndim != 3:
        raise _misfit(CONV2D)
    steps, around, apart, more = (
        _of_row(each, default) for default, each in ((1, stride), (0, padding), (1, dilation), (0, output_padding))
    )
    row = Tensor(weight.data[:, :, None], weight.quantization)
    return replace(convolution(row, bias, steps, around, apart, groups, output_padding=more), is_row=True)


def _is_row(value: Any, size: int) -> bool:
    return isinstance(value, Tensor) and value.data.dtype == np.float32 and value.data.shape == (size,)


def _of_row(value: Any, default: int) -> Any:
    """Returns a number for the rows and columns of an image with one row. Two numbers stay (`MakeArgForConv1d` in
    aten/src/ATen/native/quantized/cpu/QuantUtils.h): PyTorch's own modules pass two for a padding mode.
    """
    items = list(value) if isinstance(value, list | tuple) else value
    if items is None or (isinstance(items, list) and len(items) == 2):
        return items
    return [default, *(items if isinstance(items, list) else [items])]


def _convolution(config: list[Any], weight: Any, bias: list[Any]) -> Packed:
    """Returns the parameters of a convolution. `config` contains the number of dimensions, then stride, padding,
    dilation and output padding, each for all dimensions, then groups and flags.
    """
    count = config[0] if config else 0
    if count not in (2, 3):
        raise Unsupported(f"convolutions with {count or 'no'} dimensions cannot be compiled")
    if len(config) != 4 * count + 3:
        raise _misfit(CONV2D)
    stride, padding, dilation, more = (config[1 + index * count : 1 + (index + 1) * count] for index in range(4))
    groups, flags = config[-2:]
    given = [tensor for tensor in bias if tensor is not None]
    is_transposed = bool(flags & _TRANSPOSED)
    return convolution(
        weight,
        given[0] if given else None,
        stride,
        padding,
        dilation,
        groups,
        rank=count + 2,
        output_padding=more if is_transposed else None,
    )


def _check(kind: str, weight: Any, bias: Any, rank: int, groups: int | None = None) -> None:
    """Checks weights and bias. `groups` is the number of groups of a transposed convolution, whose filters are along
    the second axis.
    """
    along = 0 if groups is None else 1
    if not isinstance(weight, Tensor) or weight.quantization is None or weight.data.ndim != rank:
        raise _misfit(kind)
    if weight.data.dtype != np.int8:
        raise Unsupported(f"weights of {weight.data.dtype.name} cannot be compiled")
    if weight.quantization.axis not in (None, along):
        raise Unsupported("weights that are quantized along an axis other than their filters cannot be compiled")
    if 0 in weight.data.shape:
        raise _misfit(kind)
    if bias is not None:
        outputs = (weight.data.shape[along] * (groups or 1),)
        fits = isinstance(bias, Tensor) and bias.data.dtype == np.float32 and bias.data.shape == outputs
        if not fits or not np.isfinite(bias.data).all():
            raise _misfit(kind)


def _each(value: Any, least: int, count: int) -> tuple[int, ...]:
    items = tuple(value) if isinstance(value, list | tuple) else ()
    if len(items) != count or not all(type(item) is int and least <= item < 1 << 16 for item in items):
        raise _misfit(CONV2D)
    return items


def _misfit(kind: str) -> MalformedModel:
    return MalformedModel(f"the archive has a {kind} whose parts do not fit together")
