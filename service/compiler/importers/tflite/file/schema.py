"""The tables of TFLite's FlatBuffer schema that the importer reads, as data for the verifier.

Taken from `schema.fbs` (version 3c) of LiteRT, without fields that are never read. Fields have the schema's names. A
test compares their slots with those of the `tflite` package.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.importers.flatbuffer.kinds import (
    BOOL,
    BYTE,
    FLOAT,
    INT,
    LONG,
    UINT,
    Ref,
    Refs,
    Schema,
    Table,
    Text,
    Union,
    Vector,
)

VERSION = 3  # TFLITE_SCHEMA_VERSION in tflite/version.h


# Options of the operators that are converted: value of the BuiltinOptions union -> table.
OPTIONS: Mapping[int, str] = {
    1: "Conv2DOptions",
    2: "DepthwiseConv2DOptions",
    5: "Pool2DOptions",
    6: "SVDFOptions",
    7: "RNNOptions",
    8: "FullyConnectedOptions",
    9: "SoftmaxOptions",
    10: "ConcatenationOptions",
    11: "AddOptions",
    12: "L2NormOptions",
    13: "LocalResponseNormalizationOptions",
    14: "LSTMOptions",
    15: "ResizeBilinearOptions",
    16: "CallOptions",
    17: "ReshapeOptions",
    19: "SpaceToDepthOptions",
    21: "MulOptions",
    23: "GatherOptions",
    27: "ReducerOptions",
    28: "SubOptions",
    29: "DivOptions",
    30: "SqueezeOptions",
    31: "SequenceRNNOptions",
    32: "StridedSliceOptions",
    49: "TransposeConvOptions",
    58: "FakeQuantOptions",
    59: "PackOptions",
    61: "OneHotOptions",
    64: "UnpackOptions",
    69: "BidirectionalSequenceLSTMOptions",
    70: "BidirectionalSequenceRNNOptions",
    71: "UnidirectionalSequenceLSTMOptions",
    74: "ResizeNearestNeighborOptions",
    75: "LeakyReluOptions",
    77: "MirrorPadOptions",
    87: "ReverseSequenceOptions",
    92: "IfOptions",
    93: "WhileOptions",
    94: "DepthToSpaceOptions",
    101: "BatchMatMulOptions",
    102: "CumsumOptions",
    103: "CallOnceOptions",
    106: "Conv3DOptions",
    111: "VarHandleOptions",
    115: "BucketizeOptions",
    116: "GeluOptions",
}

# Further options: value of the BuiltinOptions2 union -> table.
OPTIONS_2: Mapping[int, str] = {21: "StableHLOCompositeOptions"}

# Indices of sparse tensors: value of the SparseIndexVector union -> table.
# Types of the table with a tensor's other quantization.
DETAILS: Mapping[int, str] = {2: "BlockwiseQuantization"}
INDICES: Mapping[int, str] = {1: "Int32Vector", 2: "Uint16Vector", 3: "Uint8Vector"}

TABLES: Mapping[str, Table] = {
    "Model": {
        "version": (0, UINT),
        "operator_codes": (1, Refs("OperatorCode")),
        "subgraphs": (2, Refs("SubGraph")),
        "buffers": (4, Refs("Buffer")),
        "metadata": (6, Refs("Metadata")),
        "signature_defs": (7, Refs("SignatureDef")),
    },
    "Metadata": {"name": (0, Text()), "buffer": (1, UINT)},
    "OperatorCode": {
        "deprecated_builtin_code": (0, BYTE),
        "custom_code": (1, Text()),
        "version": (2, INT),
        "builtin_code": (3, INT),
    },
    "SubGraph": {
        "tensors": (0, Refs("Tensor")),
        "inputs": (1, Vector(4)),
        "outputs": (2, Vector(4)),
        "operators": (3, Refs("Operator")),
    },
    "Tensor": {
        "shape": (0, Vector(4)),
        "type": (1, BYTE),
        "buffer": (2, UINT),
        "name": (3, Text()),
        "quantization": (4, Ref("QuantizationParameters")),
        "is_variable": (5, BOOL),
        "sparsity": (6, Ref("SparsityParameters")),
        "shape_signature": (7, Vector(4)),
        "external_buffer": (10, UINT),
    },
    "QuantizationParameters": {
        "scale": (2, Vector(4)),
        "zero_point": (3, Vector(8)),
        "details_type": (4, BYTE),
        "details": (5, Union("details_type", DETAILS)),
        "quantized_dimension": (6, INT),
    },
    "BlockwiseQuantization": {"scales": (0, INT), "zero_points": (1, INT), "block_size": (2, INT)},
    "SparsityParameters": {
        "traversal_order": (0, Vector(4)),
        "block_map": (1, Vector(4)),
        "dim_metadata": (2, Refs("DimensionMetadata")),
    },
    "DimensionMetadata": {
        "format": (0, BYTE),
        "dense_size": (1, INT),
        "array_segments_type": (2, BYTE),
        "array_segments": (3, Union("array_segments_type", INDICES)),
        "array_indices_type": (4, BYTE),
        "array_indices": (5, Union("array_indices_type", INDICES)),
    },
    "Int32Vector": {"values": (0, Vector(4))},
    "Uint16Vector": {"values": (0, Vector(2))},
    "Uint8Vector": {"values": (0, Vector(1))},
    "Buffer": {
        "data": (0, Vector(1)),
        "offset": (1, LONG),
        "size": (2, LONG),
    },
    "Operator": {
        "opcode_index": (0, UINT),
        "inputs": (1, Vector(4)),
        "outputs": (2, Vector(4)),
        "builtin_options_type": (3, BYTE),
        "builtin_options": (4, Union("builtin_options_type", OPTIONS)),
        "custom_options": (5, Vector(1)),
        "intermediates": (8, Vector(4)),
        "builtin_options_2_type": (11, BYTE),
        "builtin_options_2": (12, Union("builtin_options_2_type", OPTIONS_2)),
    },
    "SignatureDef": {
        "inputs": (0, Refs("TensorMap")),
        "outputs": (1, Refs("TensorMap")),
        "signature_key": (2, Text()),
        "subgraph_index": (4, UINT),
    },
    "TensorMap": {
        "name": (0, Text()),
        "tensor_index": (1, UINT),
    },
    "Conv2DOptions": {
        "padding": (0, BYTE),
        "stride_w": (1, INT),
        "stride_h": (2, INT),
        "fused_activation_function": (3, BYTE),
        "dilation_w_factor": (4, INT),
        "dilation_h_factor": (5, INT),
        "quantized_bias_type": (6, BYTE),
    },
    "DepthwiseConv2DOptions": {
        "padding": (0, BYTE),
        "stride_w": (1, INT),
        "stride_h": (2, INT),
        "depth_multiplier": (3, INT),
        "fused_activation_function": (4, BYTE),
        "dilation_w_factor": (5, INT),
        "dilation_h_factor": (6, INT),
    },
    "Pool2DOptions": {
        "padding": (0, BYTE),
        "stride_w": (1, INT),
        "stride_h": (2, INT),
        "filter_width": (3, INT),
        "filter_height": (4, INT),
        "fused_activation_function": (5, BYTE),
    },
    "FullyConnectedOptions": {
        "fused_activation_function": (0, BYTE),
        "weights_format": (1, BYTE),
        "keep_num_dims": (2, BOOL),
        "asymmetric_quantize_inputs": (3, BOOL),
        "quantized_bias_type": (4, BYTE),
    },
    "SoftmaxOptions": {"beta": (0, FLOAT)},
    "ConcatenationOptions": {"axis": (0, INT), "fused_activation_function": (1, BYTE)},
    "AddOptions": {"fused_activation_function": (0, BYTE), "pot_scale_int16": (1, BOOL)},
    "MulOptions": {"fused_activation_function": (0, BYTE)},
    "LeakyReluOptions": {"alpha": (0, FLOAT)},
    "GeluOptions": {"approximate": (0, BOOL)},
    "ReducerOptions": {"keep_dims": (0, BOOL)},
    "ReshapeOptions": {"new_shape": (0, Vector(4))},
    "BatchMatMulOptions": {"adj_x": (0, BOOL), "adj_y": (1, BOOL), "asymmetric_quantize_inputs": (2, BOOL)},
    "L2NormOptions": {"fused_activation_function": (0, BYTE)},
    "ResizeBilinearOptions": {"align_corners": (2, BOOL), "half_pixel_centers": (3, BOOL)},
    "DivOptions": {"fused_activation_function": (0, BYTE)},
    "SubOptions": {"fused_activation_function": (0, BYTE), "pot_scale_int16": (1, BOOL)},
    "SpaceToDepthOptions": {"block_size": (0, INT)},
    "DepthToSpaceOptions": {"block_size": (0, INT)},
    "BucketizeOptions": {"boundaries": (0, Vector(4))},
    "GatherOptions": {"axis": (0, INT), "batch_dims": (1, INT)},
    "PackOptions": {"axis": (1, INT)},
    "UnpackOptions": {"axis": (1, INT)},
    "ResizeNearestNeighborOptions": {"align_corners": (0, BOOL), "half_pixel_centers": (1, BOOL)},
    "MirrorPadOptions": {"mode": (0, BYTE)},
    "StridedSliceOptions": {
        "begin_mask": (0, INT),
        "end_mask": (1, INT),
        "ellipsis_mask": (2, INT),
        "new_axis_mask": (3, INT),
        "shrink_axis_mask": (4, INT),
        "offset": (5, BOOL),
    },
    "SqueezeOptions": {"squeeze_dims": (0, Vector(4))},
    "TransposeConvOptions": {
        "padding": (0, BYTE),
        "stride_w": (1, INT),
        "stride_h": (2, INT),
        "fused_activation_function": (3, BYTE),
        "quantized_bias_type": (4, BYTE),
    },
    "SVDFOptions": {
        "rank": (0, INT),
        "fused_activation_function": (1, BYTE),
        "asymmetric_quantize_inputs": (2, BOOL),
    },
    "UnidirectionalSequenceLSTMOptions": {
        "fused_activation_function": (0, BYTE),
        "cell_clip": (1, FLOAT),
        "proj_clip": (2, FLOAT),
        "time_major": (3, BOOL),
        "asymmetric_quantize_inputs": (4, BOOL),
        "diagonal_recurrent_tensors": (5, BOOL),
    },
    "BidirectionalSequenceLSTMOptions": {
        "fused_activation_function": (0, BYTE),
        "cell_clip": (1, FLOAT),
        "proj_clip": (2, FLOAT),
        "merge_outputs": (3, BOOL),
        "time_major": (4, BOOL),
        "asymmetric_quantize_inputs": (5, BOOL),
    },
    "LSTMOptions": {
        "fused_activation_function": (0, BYTE),
        "cell_clip": (1, FLOAT),
        "proj_clip": (2, FLOAT),
        "kernel_type": (3, BYTE),
        "asymmetric_quantize_inputs": (4, BOOL),
    },
    "RNNOptions": {"fused_activation_function": (0, BYTE), "asymmetric_quantize_inputs": (1, BOOL)},
    "SequenceRNNOptions": {
        "time_major": (0, BOOL),
        "fused_activation_function": (1, BYTE),
        "asymmetric_quantize_inputs": (2, BOOL),
    },
    "BidirectionalSequenceRNNOptions": {
        "time_major": (0, BOOL),
        "fused_activation_function": (1, BYTE),
        "merge_outputs": (2, BOOL),
        "asymmetric_quantize_inputs": (3, BOOL),
    },
    "LocalResponseNormalizationOptions": {
        "radius": (0, INT),
        "bias": (1, FLOAT),
        "alpha": (2, FLOAT),
        "beta": (3, FLOAT),
    },
    "FakeQuantOptions": {
        "min": (0, FLOAT),
        "max": (1, FLOAT),
        "num_bits": (2, INT),
        "narrow_range": (3, BOOL),
    },
    "OneHotOptions": {"axis": (0, INT)},
    "ReverseSequenceOptions": {"seq_dim": (0, INT), "batch_dim": (1, INT)},
    "CumsumOptions": {"exclusive": (0, BOOL), "reverse": (1, BOOL)},
    "Conv3DOptions": {
        "padding": (0, BYTE),
        "stride_d": (1, INT),
        "stride_w": (2, INT),
        "stride_h": (3, INT),
        "fused_activation_function": (4, BYTE),
        "dilation_d_factor": (5, INT),
        "dilation_w_factor": (6, INT),
        "dilation_h_factor": (7, INT),
    },
    "CallOptions": {"subgraph": (0, UINT)},
    "IfOptions": {"then_subgraph_index": (0, INT), "else_subgraph_index": (1, INT)},
    "WhileOptions": {"cond_subgraph_index": (0, INT), "body_subgraph_index": (1, INT)},
    "StableHLOCompositeOptions": {"name": (0, Text()), "decomposition_subgraph_index": (1, INT)},
    "CallOnceOptions": {"init_subgraph_index": (0, INT)},
    "VarHandleOptions": {"container": (0, Text()), "shared_name": (1, Text())},
}

REAL_VECTORS = frozenset({"boundaries"})  # options that are vectors of float32

MODEL = Schema("TFLite file", b"TFL3", "Model", TABLES)


def zero_of(option: str) -> int | str | tuple[int, ...]:
    """Returns the value that the option `option` has if all of its bytes are 0."""
    (kind,) = {
        TABLES[table][option][1] for table in (*OPTIONS.values(), *OPTIONS_2.values()) if option in TABLES[table]
    }
    match kind:
        case Vector():
            return ()
        case Text():
            return ""
    return 0


def accessor(field_name: str) -> str:
    """Returns the method of the `tflite` package that reads a field: `stride_w` -> `StrideW`."""
    return "".join(part.capitalize() for part in field_name.split("_"))
