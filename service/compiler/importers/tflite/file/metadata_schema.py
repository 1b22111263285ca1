"""The tables of TFLite's metadata that Octet reads, as data for the verifier and the reader.

Taken from `metadata_schema.fbs` (semantic version 1.1.0) of tensorflow/tflite-support. The FlatBuffer is the content of
the model's buffer `TFLITE_METADATA`.
"""

from __future__ import annotations

from collections.abc import Mapping

from service.compiler.importers.flatbuffer.kinds import BYTE, Ref, Refs, Schema, Table, Text, Union, Vector

# Members of the union ProcessUnitOptions.
NORMALIZATION_OPTIONS, BERT_OPTIONS, REGEX_OPTIONS = 1, 4, 6
IMAGE_PROPERTIES = 2  # a member of the union ContentProperties
TENSOR_AXIS_LABELS = 2  # a value of AssociatedFileType

TABLES: Mapping[str, Table] = {
    "ModelMetadata": {"subgraph_metadata": (3, Refs("SubGraphMetadata"))},
    "SubGraphMetadata": {
        "input_tensor_metadata": (2, Refs("TensorMetadata")),
        "output_tensor_metadata": (3, Refs("TensorMetadata")),
        "input_process_units": (5, Refs("ProcessUnit")),
    },
    "TensorMetadata": {
        "name": (0, Text()),
        "content": (3, Ref("Content")),
        "process_units": (4, Refs("ProcessUnit")),
        "associated_files": (6, Refs("AssociatedFile")),
    },
    "Content": {"content_properties_type": (0, BYTE)},
    "ProcessUnit": {
        "options_type": (0, BYTE),
        "options": (
            1,
            Union(
                "options_type",
                {
                    NORMALIZATION_OPTIONS: "NormalizationOptions",
                    BERT_OPTIONS: "BertTokenizerOptions",
                    REGEX_OPTIONS: "RegexTokenizerOptions",
                },
            ),
        ),
    },
    "BertTokenizerOptions": {"vocab_file": (0, Refs("AssociatedFile"))},
    "RegexTokenizerOptions": {"delim_regex_pattern": (0, Text()), "vocab_file": (1, Refs("AssociatedFile"))},
    "NormalizationOptions": {"mean": (0, Vector(4)), "std": (1, Vector(4))},
    "AssociatedFile": {"name": (0, Text()), "type": (2, BYTE), "locale": (3, Text())},
}

METADATA = Schema("TFLite metadata", b"M001", "ModelMetadata", TABLES)
