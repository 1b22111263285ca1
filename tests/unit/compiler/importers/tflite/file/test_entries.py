"""One of several signatures becomes the file's only entry point."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from service.compiler.importers.tflite import import_model
from service.compiler.importers.tflite.file.entries import with_entry
from service.compiler.importers.uploads import upload_of
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import InvalidInput, MalformedModel, Unsupported
from tests.support.tflite_control import two_entries

F = np.float32
X = np.arange(6, dtype=F).reshape(2, 3)


def test_the_first_entry_point_is_the_default() -> None:
    imported = import_model(two_entries())
    assert [spec.name for spec in imported.signature.inputs] == ["a"]
    (notice,) = imported.notices
    assert notice == "this is the file's first entry point, add; choose another with --signature: multiply"


@pytest.mark.parametrize(("key", "names"), [("add", "ab"), ("multiply", "cd"), ("again", "ef")])
def test_a_signature_is_what_litert_runs(key: str, names: str) -> None:
    data = two_entries()
    chosen = with_entry(data, key)
    imported = import_model(chosen)
    specs = (*imported.signature.inputs, *imported.signature.outputs)
    assert [spec.name for spec in specs] == [*names]
    assert imported.notices == ()
    (ours,) = oracle.run(imported.module, get_mode(LITERT_REFERENCE), [X])
    by_name = Interpreter(model_content=data).get_signature_runner(key)(**{names[0]: X})
    np.testing.assert_array_equal(ours, by_name[names[1]])
    plain = Interpreter(model_content=chosen)
    plain.allocate_tensors()
    plain.set_tensor(plain.get_input_details()[0]["index"], X)
    plain.invoke()
    np.testing.assert_array_equal(plain.get_tensor(plain.get_output_details()[0]["index"]), ours)


def test_the_command_line_chooses_it(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(two_entries())
    with upload_of(tmp_path / "model.tflite", signature="multiply") as upload:
        assert [spec.name for spec in import_model(upload.read_bytes()).signature.inputs] == ["c"]


def test_an_unknown_signature_lists_the_others() -> None:
    with pytest.raises(InvalidInput, match="no signature 'train'") as caught:
        with_entry(two_entries(), "train")
    assert caught.value.hint == "it has: add, multiply, again"


def test_a_subgraph_that_operators_run_is_no_entry_point() -> None:
    with pytest.raises(Unsupported, match="runs subgraph 1, which operators of the file run too"):
        with_entry(two_entries(shared=True), "multiply")


def test_only_tflite_files_have_signatures(tmp_path: Path) -> None:
    (tmp_path / "model.qnn").write_bytes(b"// qnn 1\n")
    with pytest.raises(InvalidInput, match="is not a TFLite file"), upload_of(tmp_path / "model.qnn", signature="a"):
        pass


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(MalformedModel):
        with_entry(two_entries()[:-100], "multiply")
