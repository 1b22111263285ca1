"""The tables agree with themselves: a union's members exist, and no table contains itself."""

from __future__ import annotations

import pytest

from service.compiler.importers.executorch.file import delegate_schema, program_schema
from service.compiler.importers.flatbuffer.kinds import Ref, Refs, Schema, Union

SCHEMAS = [program_schema.PROGRAM, *delegate_schema.GRAPHS.values()]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.identifier.decode())
def test_no_table_contains_itself(schema: Schema) -> None:
    """The verifier's recursion depth is bounded only because no table contains itself."""

    def descend(table: str, above: tuple[str, ...]) -> None:
        assert table not in above
        for _, kind in schema.tables[table].values():
            if isinstance(kind, Union):
                children = list(kind.tables.values())
            else:
                children = [kind.table] if isinstance(kind, Ref | Refs) else []
            for child in children:
                descend(child, (*above, table))

    descend(schema.root, ())


def test_nodes_have_the_numbers_of_the_union() -> None:
    assert delegate_schema.NODES[2] == "XNNFullyConnected"
    assert delegate_schema.NODES[18] == "XNNConvert"
    assert delegate_schema.NODES[47] == "XNNCos"
