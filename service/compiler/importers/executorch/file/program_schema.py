"""The tables of ExecuTorch's program that Octet reads (schema/program.fbs of ExecuTorch 1.5.1), as data for the
verifier and the reader. Fields that are never read are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.importers.flatbuffer.kinds import (
    BOOL,
    BYTE,
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

_DOUBLE = Scalar(8)
_LISTED = {"items": (0, Vector(4))}

# The unions KernelTypes and InstructionArguments: number -> table.
VALUES: Mapping[int, str] = {
    1: "Null",
    2: "Int",
    3: "Bool",
    4: "Double",
    5: "Tensor",
    6: "String",
    7: "IntList",
    8: "DoubleList",
    9: "BoolList",
    10: "TensorList",
    11: "OptionalTensorList",
}
INSTRUCTIONS: Mapping[int, str] = {
    1: "KernelCall",
    2: "DelegateCall",
    3: "MoveCall",
    4: "JumpFalseCall",
    5: "FreeCall",
}
# The enumeration ScalarType: number -> dtype, of the types that Octet reads.
DTYPES: Mapping[int, str] = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
    15: "bfloat16",
    27: "uint16",
    28: "uint32",
    29: "uint64",
}
INLINE, SEGMENT = 0, 1  # DataLocation
EXTERNAL = 1  # TensorDataLocation

TABLES: Mapping[str, Table] = {
    "Program": {
        "version": (0, UINT),
        "execution_plan": (1, Refs("ExecutionPlan")),
        "constant_buffer": (2, Refs("Buffer")),
        "backend_delegate_data": (3, Refs("BackendDelegateInlineData")),
        "segments": (4, Refs("DataSegment")),
        "constant_segment": (5, Ref("SubsegmentOffsets")),
        "mutable_data_segments": (6, Refs("SubsegmentOffsets")),
        "named_data": (7, Refs("NamedData")),
    },
    "ExecutionPlan": {
        "name": (0, Text()),
        "values": (2, Refs("EValue")),
        "inputs": (3, Vector(4)),
        "outputs": (4, Vector(4)),
        "chains": (5, Refs("Chain")),
        "operators": (6, Refs("Operator")),
        "delegates": (7, Refs("BackendDelegate")),
    },
    "EValue": {"val_type": (0, BYTE), "val": (1, Union("val_type", VALUES))},
    "Null": {},
    "Int": {"int_val": (0, LONG)},
    "Bool": {"bool_val": (0, BOOL)},
    "Double": {"double_val": (0, _DOUBLE)},
    "String": {"string_val": (0, Text())},
    "IntList": {"items": (0, Vector(8))},
    "DoubleList": {"items": (0, Vector(8))},
    "BoolList": {"items": (0, Vector(1))},
    "TensorList": dict(_LISTED),
    "OptionalTensorList": dict(_LISTED),
    "Tensor": {
        "scalar_type": (0, BYTE),
        "storage_offset": (1, INT),
        "sizes": (2, Vector(4)),
        "dim_order": (3, Vector(1)),
        "data_buffer_idx": (5, UINT),
        "allocation_info": (6, Ref("AllocationDetails")),
        "shape_dynamism": (8, BYTE),
        "extra_tensor_info": (9, Ref("ExtraTensorInfo")),
    },
    "AllocationDetails": {},
    "ExtraTensorInfo": {
        "mutable_data_segments_idx": (0, LONG),
        "fully_qualified_name": (1, Text()),
        "location": (2, BYTE),
    },
    "Operator": {"name": (0, Text()), "overload": (1, Text())},
    "Chain": {"instructions": (2, Refs("Instruction"))},
    "Instruction": {"instr_args_type": (0, BYTE), "instr_args": (1, Union("instr_args_type", INSTRUCTIONS))},
    "KernelCall": {"op_index": (0, INT), "args": (1, Vector(4))},
    "DelegateCall": {"delegate_index": (0, INT), "args": (1, Vector(4))},
    "MoveCall": {"move_from": (0, INT), "move_to": (1, INT)},
    "JumpFalseCall": {"cond_value_index": (0, INT), "destination_instruction": (1, INT)},
    "FreeCall": {"value_index": (0, INT)},
    "BackendDelegate": {"id": (0, Text()), "processed": (1, Ref("BackendDelegateDataReference"))},
    "BackendDelegateDataReference": {"location": (0, BYTE), "index": (1, UINT)},
    "Buffer": {"storage": (0, Vector(1))},
    "BackendDelegateInlineData": {"data": (0, Vector(1))},
    "DataSegment": {"offset": (0, LONG), "size": (1, LONG)},
    "SubsegmentOffsets": {"segment_index": (0, UINT), "offsets": (1, Vector(8))},
    "NamedData": {"key": (0, Text()), "segment_index": (1, UINT)},
}

IDENTIFIER = b"ET12"
PROGRAM = Schema("ExecuTorch program", IDENTIFIER, "Program", TABLES)
