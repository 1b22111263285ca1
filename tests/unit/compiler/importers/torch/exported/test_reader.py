"""Reads exported programs, and refuses damaged ones with a message."""

from __future__ import annotations

import io
import json
import random
import zipfile
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.torch.exported import import_exported
from service.core.errors import InvalidInput, MalformedModel, OctetError, Unsupported
from tests.support.exported import FIXTURES, document, imported, node, program, quantize, tensor
from tests.support.exported_programs import RELU, STEPS, refused, result


def test_documents_that_pytorch_never_writes_are_refused() -> None:
    for text in ("", "[]", "null", "{", '{"a": 1}', "[" * 100_000, '{"schema_version": {"major": true}}', "\xff"):
        assert isinstance(refused(text), OctetError)
    assert "schema version 9" in str(refused(document(STEPS, schema_version={"major": 9})))
    twice = [quantize("x", "q"), quantize("x", "q")]
    assert "twice" in str(refused(document(twice, "q")))
    assert "before any operator computes" in str(refused(document([node(RELU, "y", tensor("z"))])))
    assert "no operator computes it" in str(refused(document(STEPS, "nobody")))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([quantize("x", "y", scale=-1.0)], "every scale must be positive"),
        ([quantize("x", "y", scale=0.0)], "every scale must be positive"),
        ([quantize("x", "y", zero_point=300)], "a zero point is outside the range of int8"),
        ([{**node("torch.ops.aten._print.default", "y", {"as_string": "a"}), "outputs": []}], "has no result"),
    ],
)
def test_programs_that_pytorch_runs_are_not_called_damaged(nodes: list[dict[str, Any]], message: str) -> None:
    error = refused(document(nodes))
    assert isinstance(error, Unsupported)
    assert not isinstance(error, MalformedModel)
    assert message in str(error)
    assert error.op


def test_the_least_integer_and_the_largest_numbers_are_read() -> None:
    nodes = [
        node("torch.ops.aten.slice.Tensor", "a", tensor("x"), {"as_int": 2}, {"as_int": -(1 << 63)}),
        node("torch.ops.aten.clamp.default", "y", tensor("a"), {"as_float": -1.7976931348623157e308}),
    ]
    x = np.array([[[-2, 0, 3]]], np.float32)
    np.testing.assert_array_equal(result(nodes, x), x)


def test_a_program_that_changes_its_own_state_is_refused() -> None:
    whole = document(STEPS)
    spec = {"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "seen"}}
    whole["graph_module"]["signature"]["output_specs"].append(spec)
    assert "buffer_mutation" in str(refused(whole))


@pytest.mark.parametrize("name", ["../evil", "net/../../evil", "/etc/passwd", "other/x", "net/a\\b", "net//a"])
def test_a_name_outside_the_folder_is_refused(name: str) -> None:
    file = io.BytesIO(program(document(STEPS)))
    with zipfile.ZipFile(file, "a") as written:
        written.writestr(zipfile.ZipInfo(name), b"")
    with pytest.raises(MalformedModel, match="zip archive has"):
        import_exported(file.getvalue())


def test_a_zip_bomb_is_not_unpacked() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as written:
        written.writestr("net/models/model.json", b" " * (1 << 26))
    with pytest.raises(MalformedModel, match="which is too large"):
        import_exported(file.getvalue())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_damaged_program_is_refused_with_a_message(path: Any) -> None:
    """Each mutation removes, swaps or replaces members of the document."""
    with zipfile.ZipFile(path) as archive:
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    rng = random.Random(0)
    for _ in range(25):
        whole = json.loads(records["models/model.json"])
        for _ in range(rng.randint(1, 3)):
            _damage(whole, rng)
        with suppress(MalformedModel, Unsupported, InvalidInput):
            import_exported(program(whole, {**records, "models/model.json": json.dumps(whole)}))
    assert imported(path).signature.inputs[0].name == "x"


def _damage(value: Any, rng: random.Random) -> None:
    """Changes one value below `value`, at a random depth."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return None
    key = rng.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.9:
        return _damage(value[key], rng)
    match rng.randrange(4):
        case 0:
            del value[key]
        case 1:
            value[key] = rng.choice([None, True, -1, 1 << 70, 1e300, "", "x", [], {}, [[]]])
        case 2:
            value[key] = value[rng.choice(keys)]
        case _ if isinstance(value[key], int):
            value[key] += rng.choice([-1, 1, 100])
    return None
