"""Octet's tables of the schema equal those of two generated readers, which contain the whole schema."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest
import tflite
from ai_edge_litert import schema_py_generated as litert_schema

from service.compiler.importers.flatbuffer import kinds
from service.compiler.importers.tflite import activations, geometry
from service.compiler.importers.tflite.file import schema

FIELDS = [(table, field) for table, fields in schema.TABLES.items() for field in fields]
# `accessors.int32_at` reads both fields of an operator code. For codes below 127, `tflite` returns the older field.
# `tflite` does not have these fields yet.
_INTERPRETED = {("OperatorCode", "builtin_code")}
_NEWER = {
    ("Tensor", "external_buffer"),
    *(("BlockwiseQuantization", field) for field in ("scales", "zero_points", "block_size")),
}


@pytest.mark.parametrize("package", [tflite, litert_schema], ids=["tflite", "ai-edge-litert"])
@pytest.mark.parametrize(("table", "field"), FIELDS)
def test_generated_code_reads_the_same_slot(table: str, field: str, package: object) -> None:
    slot, _ = schema.TABLES[table][field]
    if package is tflite and (table, field) in _NEWER:
        assert not hasattr(getattr(tflite, table, None), schema.accessor(field)), "the package has it by now"
        return
    source = inspect.getsource(getattr(getattr(package, table), schema.accessor(field)))
    (vtable_entry,) = re.findall(r"_tab\.Offset\((\d+)\)", source)
    assert int(vtable_entry) == 4 + 2 * slot


@pytest.mark.parametrize(("table", "field"), [each for each in FIELDS if each not in {*_INTERPRETED, *_NEWER}])
def test_accessor_only_reads(table: str, field: str) -> None:
    """The two packages were generated separately. If an accessor does more in one of them, it was edited by hand."""
    name = schema.accessor(field)
    ours, theirs = (_statements(getattr(getattr(package, table), name)) for package in (tflite, litert_schema))
    assert ours == theirs


def test_accessors_that_interpret_fields_are_listed() -> None:
    assert "PLACEHOLDER" in inspect.getsource(tflite.OperatorCode.BuiltinCode)


def _statements(function: Callable[..., object]) -> str:
    source = re.sub(r"from tflite\.\w+ import \w+|#.*", "", inspect.getsource(function))
    return re.sub(r"\s+", " ", source)


_WIDTHS = {
    "Bool": 1,
    "Int8": 1,
    "Uint8": 1,
    "Uint16": 2,
    "Int32": 4,
    "Uint32": 4,
    "Float32": 4,
    "Int64": 8,
    "Uint64": 8,
}


@pytest.mark.parametrize(("table", "field"), FIELDS)
def test_generated_code_reads_the_same_kind(table: str, field: str) -> None:
    package = litert_schema if (table, field) in _NEWER else tflite
    source = inspect.getsource(getattr(getattr(package, table), schema.accessor(field)))
    _, kind = schema.TABLES[table][field]
    scalars = [name for name in re.findall(r"Get\(flatbuffers\.number_types\.(\w+)Flags", source) if name in _WIDTHS]
    match kind:
        case kinds.Scalar(size_bytes):
            assert [_WIDTHS[name] for name in scalars] == [size_bytes]
            assert "Vector(" not in source
        case kinds.Vector(item_bytes):
            assert [_WIDTHS[name] for name in scalars] == [item_bytes]
            assert "Vector(" in source
        case kinds.Text():
            assert "_tab.String(" in source
        case kinds.Ref(name) | kinds.Refs(name):
            assert f"obj = {name}()" in source
            assert ("Vector(" in source) == isinstance(kind, kinds.Refs)
        case kinds.Union(_, _):
            assert "_tab.Union(" in source


def test_options_have_the_numbers_of_their_union_members() -> None:
    numbers = {name: number for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}
    assert {name: number for number, name in schema.OPTIONS.items()}.items() <= numbers.items()


def test_enumerations_equal_the_schema() -> None:
    kinds = tflite.ActivationFunctionType
    assert all(getattr(kinds, name) == number for number, name in activations.NAMES.items())
    assert (geometry.SAME, geometry.VALID) == (tflite.Padding.SAME, tflite.Padding.VALID)


def test_no_table_contains_itself() -> None:
    """The verifier's recursion depth is bounded only because no table contains itself."""

    def descend(table: str, above: tuple[str, ...]) -> None:
        assert table not in above
        for _, kind in schema.TABLES[table].values():
            for child in kind.tables.values() if isinstance(kind, kinds.Union) else (getattr(kind, "table", None),):
                if child:
                    descend(child, (*above, table))

    descend("Model", ())
