"""The steps after a model of sentence-transformers: pooling, dense layers and normalizations. `modules.json` and the
folders that it names define them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compiler.importers.published.configuration import CONFIG, MODULES
from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.safetensors import read_tensors
from service.core.errors import InvalidInput, Unsupported
from service.core.models.arrays import Array
from service.core.models.text import Pooling, parse_pooling
from service.core.printable import printable

_WEIGHTS, _PICKLE = "model.safetensors", "pytorch_model.bin"
_MOST_STEPS = 16
_MOST_WEIGHT_BYTES = 256 << 20
_VECTOR = "sentence_embedding"
_POOLINGS: Mapping[str, Pooling] = {
    "cls": Pooling.CLS,
    "max": Pooling.MAX,
    "mean": Pooling.MEAN,
    "mean_sqrt_len_tokens": Pooling.MEAN_SQRT,
    "weightedmean": Pooling.WEIGHTED_MEAN,
    "lasttoken": Pooling.LAST,
}
# The members of `1_Pooling/config.json` that older releases wrote, in the order in which their vectors are joined.
_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_max_tokens": Pooling.MAX,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": Pooling.MEAN_SQRT,
    "pooling_mode_weightedmean_tokens": Pooling.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": Pooling.LAST,
}
# The last part of the names of PyTorch's classes. sentence-transformers creates them with their default arguments.
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "Sigmoid", "GELU", "SiLU", "LeakyReLU", "ELU", "Softplus", "ReLU6")
_EXPORT = "export the model with this step in the ONNX file, as the output sentence_embedding"


@dataclass(frozen=True, eq=False)
class Dense:
    """A dense layer: activation(x @ weight.T + bias), to which the residual is added.

    Attributes:
        weight: float32 `[outputs, inputs]`.
        bias: float32 `[outputs]`, or None.
        activation: one of `_ACTIVATIONS`.
        is_residual: true if x is added to the result.
        residual: the weights by which x is multiplied before it is added, float32 `[outputs, inputs]`, or None.
    """

    weight: Array
    bias: Array | None
    activation: str
    is_residual: bool = False
    residual: Array | None = None


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """A layer normalization with an epsilon of 1e-5. Both arrays are float32 `[size]`."""

    weight: Array
    bias: Array


class Normalization:
    """Divides the vector by its Euclidean norm, which is at least 1e-12."""


Layer = Dense | LayerNorm | Normalization


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps after a model.

    Attributes:
        pooling: see `TextProcessing.pooling`.
        layers: the layers after the pooling, up to the last one with weights.
        normalize: true if the result is normalized. None if the folder is not one of sentence-transformers.
    """

    pooling: tuple[Pooling, ...] = ()
    layers: Sequence[Layer] = ()
    normalize: bool | None = None


def read_steps(folder: Folder, *, is_pooled: bool, pooling: tuple[Pooling, ...] = ()) -> Steps:
    """Returns the steps that a folder defines.

    Args:
        is_pooled: true if the model file itself computes one vector for each text. Exporters that pool include the
            layers with weights.
        pooling: the pooling that replaces that of the folder; empty to read the folder's.

    Raises:
        InvalidInput: a file is damaged.
        Unsupported: a step is not one that Octet computes, or its weights are in a pickle.
    """
    if MODULES not in folder:
        return Steps()
    layers: list[Layer] = []
    for kind, path in _steps(folder):
        match kind:
            case "Transformer" | "Dropout":
                pass  # a dropout does nothing outside of training
            case _ if is_pooled and kind != "Normalize":
                pass
            case "Pooling":
                pooling = pooling or _pooling(folder, path)
            case "Normalize":
                _check_ends(folder.json(f"{path}/{CONFIG}"), path)
                layers.append(Normalization())
            case "Dense":
                layers.append(_dense(folder, path))
            case "LayerNorm":
                weights = _weights(folder, path)
                layers.append(LayerNorm(_of(weights, "norm.weight", path, 1), _of(weights, "norm.bias", path, 1)))
            case _:
                raise Unsupported(
                    f"{MODULES} has the step {printable(kind)!r}, which Octet does not compute after a model",
                    hint=_EXPORT,
                )
    normalize = bool(layers) and isinstance(layers[-1], Normalization)
    while layers and isinstance(layers[-1], Normalization):
        layers.pop()
    return Steps(() if is_pooled else pooling, tuple(layers), normalize)


def _steps(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yields the type and the folder of each step."""
    modules = folder.json_value(MODULES)
    if not isinstance(modules, list) or len(modules) > _MOST_STEPS:
        raise InvalidInput(f"{MODULES} is not a JSON array of at most {_MOST_STEPS} steps")
    for module in modules:
        kind, path = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(path, str):
            raise InvalidInput(f"a step in {MODULES} has no type or no path")
        yield kind.rpartition(".")[2], path


def _pooling(folder: Folder, path: str) -> tuple[Pooling, ...]:
    name = f"{path}/{CONFIG}"
    config = folder.json(name)
    if config.get("include_prompt") is False:
        raise Unsupported(
            f"{printable(name)} leaves the prompt out of the pooling, which Octet does not",
            hint="--pooling replaces it, and then counts the prompt",
        )
    if "pooling_mode" not in config:
        return tuple(way for flag, way in _FLAGS.items() if config.get(flag) is True) or (Pooling.MEAN,)
    modes = config["pooling_mode"]
    named = [modes] if isinstance(modes, str) else modes
    if not isinstance(named, list) or not named or not set(map(str, named)) <= _POOLINGS.keys():
        raise Unsupported(
            f"the pooling in {printable(name)} is {printable(repr(modes))}, but Octet computes {', '.join(_POOLINGS)}",
            hint="--pooling replaces it",
        )
    return parse_pooling("+".join(_POOLINGS[each] for each in named))


def _dense(folder: Folder, path: str) -> Dense:
    name = f"{path}/{CONFIG}"
    config = folder.json(name)
    _check_ends(config, path)
    activation = config.get("activation_function", "torch.nn.Tanh")
    short = str(activation).rpartition(".")[2]
    if not str(activation).startswith("torch.") or short not in _ACTIVATIONS:
        raise Unsupported(
            f"the activation in {printable(name)} is {printable(str(activation))!r}, which Octet does not compute here",
            hint=_EXPORT,
        )
    weights, is_residual = _weights(folder, path), config.get("use_residual") is True
    weight = _of(weights, "linear.weight", path, 2)
    bias = _of(weights, "linear.bias", path, 1) if config.get("bias", True) else None
    residual = _of(weights, "residual.weight", path, 2) if "residual.weight" in weights and is_residual else None
    if bias is not None and len(bias) != len(weight):
        raise InvalidInput(f"the bias in {printable(path)} has {len(bias)} elements, not {len(weight)}")
    return Dense(weight, bias, short, is_residual, residual)


def _check_ends(config: Mapping[str, Any], path: str) -> None:
    """Raises `Unsupported` if a step works on something else than the vector of the text."""
    for member in ("module_input_name", "module_output_name"):
        found = config.get(member)
        if found not in (None, _VECTOR):
            raise Unsupported(
                f"{printable(path)} computes {printable(str(found))}, but Octet computes one vector for each text",
                hint=_EXPORT,
            )


def _weights(folder: Folder, path: str) -> dict[str, Array]:
    name = f"{path}/{_WEIGHTS}"
    if name in folder:
        return read_tensors(folder.read(name, _MOST_WEIGHT_BYTES), name)
    if f"{path}/{_PICKLE}" in folder:
        raise Unsupported(
            f"the weights of {printable(path)} are a pickle ({_PICKLE}), which can run programs and is never opened",
            hint="sentence_transformers.SentenceTransformer('DIR').save('OUTPUT') writes safetensors files instead",
        )
    raise InvalidInput(f"{printable(name)} is missing", hint="download the whole folder")


def _of(weights: Mapping[str, Array], name: str, path: str, rank: int) -> Array:
    found = weights.get(name)
    if found is None or found.ndim != rank:
        raise InvalidInput(f"the weights in {printable(path)} have no {name} of {rank} dimensions")
    return found
