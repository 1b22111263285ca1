"""Tests of `octet push` with the folder of a published model: what the server receives and what the user sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from service.api.app import create_app
from service.cli.app import app
from service.compiler.importers.published.files import Folder
from tests.support.control_plane import ControlPlane, control_plane
from tests.support.published_model import TOKENIZER, encoder, sentence_transformer, write
from tests.support.uvicorn_thread import listening


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with control_plane(tmp_path / "data") as plane:
        yield plane


@pytest.fixture
def server(plane: ControlPlane) -> Iterator[str]:
    with listening(create_app(plane.services)) as address:
        yield f"http://{address}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "bge-small-v1.5"
    model = encoder({"last_hidden_state": 3})
    write(root, sentence_transformer() | {"onnx/model.onnx": model, "onnx/model_int8.onnx": model, "README.md": ""})
    return root


def push(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["push", *arguments])


def test_the_version_has_what_the_folder_defines(plane: ControlPlane, server: str, folder: Path) -> None:
    pushed = push(str(folder), "--server", server, "--detach")
    assert pushed.exit_code == 0, pushed.output
    for line in ("int8: onnx/model_int8.onnx, 8-bit", "mean, normalized", "at most 256 tokens", "README.md"):
        assert line in pushed.stdout
    metadata = plane.services.models.version("bge-small-v1.5", 1).metadata
    assert metadata.task == "embed"
    assert metadata.text.tokenizer is not None
    assert plane.services.layout.blobs.read(metadata.text.tokenizer) == json.dumps(TOKENIZER).encode()


def test_options_replace_what_the_folder_defines(plane: ControlPlane, server: str, folder: Path) -> None:
    options = ["--task", "rerank", "--pooling", "cls", "--no-normalize", "--max-length", "64", "--variant", "model"]
    pushed = push(str(folder), *options, "--name", "m", "--server", server, "--detach", "--json")
    metadata = plane.services.models.version("m", 1).metadata
    assert (metadata.task, metadata.text.pooling, metadata.text.normalize) == ("rerank", ("cls",), False)
    assert metadata.text.max_length == 64
    assert json.loads(pushed.stdout)["published"]["variant"]["file"] == "onnx/model.onnx"


def test_a_single_file_can_have_a_tokenizer(plane: ControlPlane, server: str, folder: Path) -> None:
    file, tokenizer = folder / "onnx" / "model.onnx", folder / "tokenizer.json"
    pushed = push(str(file), "--tokenizer", str(tokenizer), "--task", "embed", "--server", server, "--detach")
    assert pushed.exit_code == 0, pushed.output
    text = plane.services.models.version("model", 1).metadata.text
    assert text.tokenizer_bytes == tokenizer.stat().st_size


def test_a_given_tokenizer_replaces_that_of_the_folder(
    plane: ControlPlane, server: str, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**TOKENIZER, "version": "2"}))
    pushed = push(str(folder), "--tokenizer", str(other), "--server", server, "--detach")
    assert pushed.exit_code == 0, pushed.output
    stored = plane.services.models.version("bge-small-v1.5", 1).metadata.text.tokenizer
    assert stored is not None
    assert json.loads(plane.services.layout.blobs.read(stored))["version"] == "2"


def test_curl_can_push_the_same_folder(plane: ControlPlane, server: str, folder: Path) -> None:
    """A form with the folder's files gives what `octet push` gives."""
    assert push(str(folder), "--server", server, "--name", "a", "--detach").exit_code == 0
    files = [("files", (name, (folder / name).read_bytes())) for name in Folder(folder).names]
    answer = httpx.post(f"{server}/api/v1/models", params={"name": "b"}, files=files, timeout=60)
    assert answer.status_code in (200, 202), answer.text
    assert answer.json()["published"]["variants"] == ["model", "int8"]
    a, b = (plane.services.models.version(name, 1) for name in "ab")
    assert (a.source, a.metadata) == (b.source, b.metadata)


def test_the_variants_are_listed_without_a_server(folder: Path) -> None:
    shown = push(str(folder), "--list", "--json")
    variants = {each["name"]: each["chosen"] for each in json.loads(shown.stdout)["variants"]}
    assert variants == {"model": False, "int8": True}
    assert "onnx/model_int8.onnx" in push(str(folder), "--list").stdout


def test_a_missing_pooling_is_noted(server: str, folder: Path) -> None:
    (folder / "modules.json").unlink()
    assert "--pooling mean or cls" in push(str(folder), "--server", server, "--detach").stderr


def test_a_variant_of_a_single_file_is_refused(folder: Path) -> None:
    assert push(str(folder / "onnx" / "model.onnx"), "--list").exit_code == 2
