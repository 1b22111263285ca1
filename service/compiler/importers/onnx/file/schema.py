"""Field numbers of an ONNX file: those parts of the messages in onnx.proto (onnx/onnx, version 1.19 of the schema) that
are read. Other fields are skipped, as protobuf's own parsers skip unknown fields.

No message contains itself, so reading needs no stack. A subgraph stays in bytes until it is read as a separate `Graph`
(`branches`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Number:
    """A number: `float32` (fixed), or `int64` for all varints."""

    dtype: str = "int64"


@dataclass(frozen=True)
class Numbers:
    """A repeated number: `float32`, `float64`, or `int64` for all varints."""

    dtype: str = "int64"


@dataclass(frozen=True)
class Text:
    """A string, or bytes; both are returned as bytes."""


@dataclass(frozen=True)
class Texts:
    """A field with several strings."""


@dataclass(frozen=True)
class One:
    """A field with a message."""

    message: str


@dataclass(frozen=True)
class Many:
    """A field with several messages."""

    message: str


@dataclass(frozen=True)
class Seen:
    """A field whose value is not read: only its presence matters."""


Kind = Number | Numbers | Text | Texts | One | Many | Seen
Message = Mapping[int, tuple[str, Kind]]

MESSAGES: Mapping[str, Message] = {
    "Model": {
        1: ("ir_version", Number()),
        7: ("graph", One("Graph")),
        8: ("opset_import", Many("OperatorSet")),
        14: ("metadata_props", Many("Entry")),
        25: ("functions", Many("Function")),
    },
    "Function": {
        1: ("name", Text()),
        4: ("input", Texts()),
        5: ("output", Texts()),
        6: ("attribute", Texts()),
        7: ("node", Many("Node")),
        9: ("opset_import", Many("OperatorSet")),
        10: ("domain", Text()),
        11: ("attribute_proto", Many("Attribute")),
        13: ("overload", Text()),
    },
    "OperatorSet": {1: ("domain", Text()), 2: ("version", Number())},
    "Graph": {
        1: ("node", Many("Node")),
        2: ("name", Text()),
        5: ("initializer", Many("Tensor")),
        11: ("input", Many("ValueInfo")),
        12: ("output", Many("ValueInfo")),
        15: ("sparse_initializer", Many("SparseTensor")),
    },
    "Node": {
        1: ("input", Texts()),
        2: ("output", Texts()),
        3: ("name", Text()),
        4: ("op_type", Text()),
        5: ("attribute", Many("Attribute")),
        7: ("domain", Text()),
        8: ("overload", Text()),
    },
    "Attribute": {
        1: ("name", Text()),
        2: ("f", Number("float32")),
        3: ("i", Number()),
        4: ("s", Text()),
        5: ("t", One("Tensor")),
        6: ("g", Text()),
        7: ("floats", Numbers("float32")),
        8: ("ints", Numbers()),
        9: ("strings", Texts()),
        11: ("graphs", Seen()),
        20: ("type", Number()),
        21: ("ref_attr_name", Text()),
        22: ("sparse_tensor", One("SparseTensor")),
    },
    "SparseTensor": {1: ("values", One("Tensor")), 2: ("indices", One("Tensor")), 3: ("dims", Numbers())},
    "Tensor": {
        1: ("dims", Numbers()),
        2: ("data_type", Number()),
        3: ("segment", Seen()),
        4: ("float_data", Numbers("float32")),
        5: ("int32_data", Numbers()),
        6: ("string_data", Seen()),
        7: ("int64_data", Numbers()),
        8: ("name", Text()),
        9: ("raw_data", Text()),
        10: ("double_data", Numbers("float64")),
        11: ("uint64_data", Numbers()),
        13: ("external_data", Many("Entry")),
        14: ("data_location", Number()),
    },
    "Entry": {1: ("key", Text()), 2: ("value", Text())},
    "ValueInfo": {1: ("name", Text()), 2: ("type", One("Type"))},
    "Type": {
        1: ("tensor_type", One("TensorType")),
        4: ("sequence_type", Seen()),
        5: ("map_type", Seen()),
        8: ("sparse_tensor_type", Seen()),
        9: ("optional_type", Seen()),
    },
    "TensorType": {1: ("elem_type", Number()), 2: ("shape", One("Shape"))},
    "Shape": {1: ("dim", Many("Dimension"))},
    "Dimension": {1: ("dim_value", Number()), 2: ("dim_param", Text())},
}

# TensorProto.DataType -> NumPy's name of it, or the schema's name in lower case if NumPy has none.
DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
EXTERNAL = 1  # TensorProto.DataLocation

ATTRIBUTE_FIELDS: Mapping[int, str] = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}
