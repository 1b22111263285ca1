"""The tables of the XNNPACK delegate's graph (backends/xnnpack/serialization/schema.fbs and runtime_schema.fbs of
ExecuTorch 1.5.1), as data for the verifier and the reader. Fields that are never read are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.importers.flatbuffer.kinds import (
    BYTE,
    FLOAT,
    INT,
    LONG,
    UINT,
    Ref,
    Refs,
    Scalar,
    Schema,
    Table,
    Text,
    Union,
    Vector,
)

NO_VALUE = 0xFFFFFFFF  # XNN_INVALID_VALUE_ID

# The enumeration XNNDatatype.
FP32, FP16, QINT8, QUINT8, QINT32, QCINT8, QCINT32, QCINT4, QDINT8, QBINT4, QPINT8, INT32, PFP32, BF16 = range(1, 15)

_ONE: Table = {"input_id": (0, UINT), "output_id": (1, UINT), "flags": (2, UINT)}
_TWO: Table = {"input1_id": (0, UINT), "input2_id": (1, UINT), "output_id": (2, UINT), "flags": (3, UINT)}
_CAT: Table = {
    "axis": (0, UINT),
    **{f"input{index}_id": (index, UINT) for index in range(1, 5)},
    "output_id": (5, UINT),
    "flags": (6, UINT),
    "input5_id": (7, UINT),
}
_SIDES = ("padding_top", "padding_right", "padding_bottom", "padding_left")
_CONVOLUTION = (
    *_SIDES,
    *("kernel_height", "kernel_width", "subsampling_height", "subsampling_width", "dilation_height", "dilation_width"),
    *("group_input_channels", "group_output_channels", "groups", "adjustment_height", "adjustment_width"),
    *("input1_id", "filter_id", "bias_id", "output_id", "flags"),
)
_POOLING = (
    *_SIDES,
    *("pooling_height", "pooling_width", "stride_height", "stride_width", "dilation_height", "dilation_width"),
    *("input_id", "output_id", "flags"),
)
_ATTENTION = ("query_id", "key_id", "value_id", "scale_id", "mask_id", "output_id", "flags")


def _of(names: tuple[str, ...]) -> Table:
    return {name: (slot, UINT) for slot, name in enumerate(names)}


# The union XNodeUnion, in its order: the node, and its table.
_NODES: tuple[tuple[str, Table], ...] = (
    ("XNNAdd", _TWO),
    ("XNNFullyConnected", _of(("input1_id", "filter_id", "bias_id", "output_id", "flags"))),
    ("XNNSoftmax", _ONE),
    ("XNNSigmoid", _ONE),
    (
        "XNNStaticTranspose",
        {
            "num_dims": (0, UINT),
            "perm": (1, Vector(4)),
            "input_id": (2, UINT),
            "output_id": (3, UINT),
            "flags": (4, UINT),
        },
    ),
    ("XNNClamp", _ONE),
    ("XNNConv2d", _of(_CONVOLUTION)),
    ("XNNDiv", _TWO),
    ("XNNStaticResizeBilinear2D", _of(("new_height", "new_width", "input_id", "output_id", "flags"))),
    (
        "XNNStaticConstantPad",
        {
            "pre_paddings": (0, Vector(4)),
            "post_paddings": (1, Vector(4)),
            "padding_value": (2, FLOAT),
            "input_id": (3, UINT),
            "output_id": (4, UINT),
            "flags": (5, UINT),
        },
    ),
    ("XNNAvgPooling2d", _of(_POOLING)),
    ("XNNMinimum", _TWO),
    ("XNNDepthwiseConv2d", _of(_CONVOLUTION)),
    ("XNNMaxPooling2d", _of(_POOLING)),
    ("XNNMultiply", _TWO),
    ("XNNSubtract", _TWO),
    ("XNNFloor", _ONE),
    ("XNNConvert", _ONE),
    ("XNNGlobalAvgPooling2d", _ONE),
    (
        "XNNStaticReshape",
        {
            "num_dims": (0, UINT),
            "new_shape": (1, Vector(4)),
            "input_id": (2, UINT),
            "output_id": (3, UINT),
            "flags": (4, UINT),
        },
    ),
    (
        "XNNArgMaxPooling2d",
        _of((*_SIDES, "pooling_height", "pooling_width", "input_id", "output_value_id", "output_index_id", "flags")),
    ),
    ("XNNSquareRoot", _ONE),
    ("XNNCeiling", _ONE),
    ("XNNHardswish", _ONE),
    (
        "XNNLeakyReLU",
        {"negative_slope": (0, FLOAT), "input_id": (1, UINT), "output_id": (2, UINT), "flags": (3, UINT)},
    ),
    ("XNNMaximum", _TWO),
    ("XNNNegate", _ONE),
    ("XNNSquare", _ONE),
    ("XNNELU", {"alpha": (0, FLOAT), "input_id": (1, UINT), "output_id": (2, UINT), "flags": (3, UINT)}),
    ("XNNAbs", _ONE),
    ("XNNPReLU", _TWO),
    ("XNNConcatenate2", _CAT),
    ("XNNConcatenate3", _CAT),
    ("XNNConcatenate4", _CAT),
    (
        "XNNStaticSlice",
        {
            "num_dims": (0, UINT),
            "offsets": (1, Vector(4)),
            "sizes": (2, Vector(4)),
            "input_id": (3, UINT),
            "output_id": (4, UINT),
            "flags": (5, UINT),
        },
    ),
    ("XNNScaledDotProductAttention", _of(_ATTENTION)),
    ("XNNBatchMatrixMultiply", _TWO),
    ("XNNConcatenate5", _CAT),
    ("XNNConvTranspose2d", _of(_CONVOLUTION)),
    ("XNNReciprocalSquareRoot", _ONE),
    ("XNNLog", _ONE),
    ("XNNGelu", _ONE),
    ("XNNTanh", _ONE),
    ("XNNExp", _ONE),
    ("XNNSin", _ONE),
    ("XNNCopy", _ONE),
    ("XNNCos", _ONE),
)
NODES: dict[int, str] = {number: name for number, (name, _) in enumerate(_NODES, 1)}
_VALUES = {1: "XNNTensorValue", 2: "XNNQuantizedTensorValue"}
_QUANTIZATIONS = {1: "PerChannelQuant", 2: "PerTensorQuant", 3: "PerTokenDynamicQuant", 4: "PerChannelGroupQuant"}

TABLES: Mapping[str, Table] = {
    "XNNGraph": {
        "xnodes": (1, Refs("XNode")),
        "xvalues": (2, Refs("XValue")),
        "num_externs": (3, UINT),
        "input_ids": (4, Vector(4)),
        "output_ids": (5, Vector(4)),
        "constant_buffer": (6, Refs("Buffer")),
        "constant_data": (8, Refs("ConstantDataOffset")),
    },
    "XNode": {
        "xnode_union_type": (0, BYTE),
        "xnode_union": (1, Union("xnode_union_type", NODES)),
        "output_min_max": (3, Ref("OutputMinMax")),
    },
    "XValue": {"xvalue_union_type": (0, BYTE), "xvalue_union": (1, Union("xvalue_union_type", _VALUES))},
    "OutputMinMax": {"output_min": (0, FLOAT), "output_max": (1, FLOAT)},
    "XNNTensorValue": {
        "datatype": (0, Scalar(2)),
        "num_dims": (1, UINT),
        "dims": (2, Vector(4)),
        "constant_buffer_idx": (3, UINT),
        "external_id": (4, UINT),
        "flags": (5, UINT),
        "id_out": (6, UINT),
    },
    "XNNQuantizedTensorValue": {
        "tensor_value": (0, Ref("XNNTensorValue")),
        "quant_params_type": (1, BYTE),
        "quant_params": (2, Union("quant_params_type", _QUANTIZATIONS)),
    },
    "PerChannelQuant": {
        "scale": (0, Vector(4)),
        "channel_dim": (1, INT),
        "scale_buffer_idx": (2, UINT),
        "num_scales": (3, UINT),
    },
    "PerTensorQuant": {"scale": (0, FLOAT), "zero_point": (1, INT)},
    "PerTokenDynamicQuant": {"num_nonbatch_dims": (0, INT)},
    "PerChannelGroupQuant": {
        "scale": (0, Vector(4)),
        "channel_dim": (1, INT),
        "group_size": (2, INT),
        "scale_bf16": (3, Vector(2)),
        "scale_buffer_idx": (4, UINT),
        "num_scales": (5, UINT),
    },
    "Buffer": {"storage": (0, Vector(1))},
    "ConstantDataOffset": {"offset": (0, LONG), "size": (1, LONG), "named_key": (2, Text())},
    **dict(_NODES),
}

# Older writers (XN00) stored constants in the FlatBuffer; the tables are otherwise the same.
IDENTIFIERS = (b"XN01", b"XN00")
GRAPHS = {
    identifier: Schema("graph of the XNNPACK delegate", identifier, "XNNGraph", TABLES) for identifier in IDENTIFIERS
}
