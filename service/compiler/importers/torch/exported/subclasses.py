"""Weights that torchao stores as tensor subclasses, in an archive with a pickle. The pickle is read without executing
anything, and only the tensors inside the subclass are returned (`torch._tensor._rebuild_from_type_v2`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.compiler.importers.archive import Archive
from service.compiler.importers.torch.tensors import Tensor, TensorReader
from service.core.errors import MalformedModel, Unsupported

_PACKAGE = "torchao"
_ZIP_MAGIC = b"PK\x03\x04"
_REBUILD = "torch._utils._rebuild_wrapper_subclass"


def inner_tensors(data: bytes) -> dict[str, Tensor]:
    """Returns the tensors in a record of an exported program, by their names in the subclass, such as `qdata`.

    Raises:
        MalformedModel: the record is damaged.
        Unsupported: the record contains something other than a tensor subclass of torchao.
    """
    if not data.startswith(_ZIP_MAGIC):
        raise MalformedModel(
            "a weight of the exported program is a pickle outside of an archive, which Octet never reads"
        )
    value = TensorReader(Archive(data, in_folder=True)).read_inert("data.pkl", _MAKERS, _CONSTANTS, _is_of_torchao)
    if not isinstance(value, dict):
        raise Unsupported(
            "a weight of the exported program is neither a tensor nor a tensor subclass of torchao",
            hint="export the model with plain tensors, or quantize it with torchao's quantize_",
        )
    return {name: each for name, each in value.items() if isinstance(each, Tensor)}


def _is_of_torchao(module: str) -> bool:
    return module.split(".")[0] == _PACKAGE


def _subclass(_function: Any, _kind: Any, _arguments: Any, state: Any) -> Any:
    return state


def _ignored(*_: Any) -> None:
    """Returns nothing for a device, a layout or a choice, which no operator reads."""


_MAKERS: Mapping[str, Callable[..., Any]] = {
    "torch._tensor._rebuild_from_type_v2": _subclass,
    "torch.device": _ignored,
    "torch.serialization._get_layout": _ignored,
    "torchao.quantization.quant_primitives.MappingType": _ignored,
    "torchao.quantization.quant_primitives.ZeroPointDomain": _ignored,
}
_CONSTANTS: Mapping[str, Any] = {
    _REBUILD: None,
    **{f"torch.{name}": name for name in ("float32", "bfloat16", "float16")},
    **{f"torch.{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 9)},
}
