"""Tests loading an artifact's files, and unloading the model."""

from __future__ import annotations

import json
import mmap
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.digest import canonical_json
from service.core.errors import CorruptBlob, InvalidTensor, OctetError, Unsupported
from service.runtime.octet_library import NativeModel, Role, Tensor
from tests.support.small_artifact import (
    BYTES,
    CONSTANTS,
    FUNCTIONS,
    LENGTH,
    SIMPLE,
    address,
    compiled,
    config_of,
    tensor,
    write_layout,
)

_ONE_CALL = config_of([("input", 0), ("output", 0)], [("twice", [0, 1])])


def _load(config: Mapping[str, Any], code: Path, constants: Path) -> NativeModel:
    return NativeModel.load_files(canonical_json(config), code, constants)


def _answer(model: NativeModel, values: Any) -> Any:
    given, got = tensor(values), tensor()
    instance = model.instance()
    instance.bind([address(given)], [address(got)])
    instance.run()
    return got[0].tolist()


def _mappings(name: str) -> list[str]:
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if name in line]


_EXPECTED = (2 * (3 + CONSTANTS[LENGTH:])).tolist()


def test_a_folder_is_loaded_and_runs(folder: Path) -> None:
    assert _answer(NativeModel.load(folder), 3) == _EXPECTED


def test_files_are_loaded_and_run(code: Path, constants: Path) -> None:
    assert _answer(_load(SIMPLE, code, constants), 3) == _EXPECTED


def test_memory_is_loaded_and_runs(code: Path) -> None:
    memory = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int32)
    memory[: CONSTANTS.size] = CONSTANTS
    model = NativeModel.load_memory(canonical_json(SIMPLE), code.read_bytes(), address(memory), CONSTANTS.nbytes)
    assert _answer(model, 3) == _EXPECTED
    assert _mappings("memfd:octet-library")


def test_constants_in_memory_have_to_be_aligned(code: Path) -> None:
    with pytest.raises(InvalidTensor, match="the constants are not aligned to 64 bytes"):
        NativeModel.load_memory(canonical_json(SIMPLE), code.read_bytes(), address(tensor()) + 4, BYTES)


def test_a_model_describes_its_inputs_and_outputs(folder: Path) -> None:
    model = NativeModel.load(folder)
    assert model.tensors(Role.INPUT) == [Tensor("in0", "INT32", (1, LENGTH), BYTES, None)]
    assert model.tensors(Role.OUTPUT) == [Tensor("out0", "INT32", (1, LENGTH), BYTES, (0.5, -3))]
    assert model.tensors(Role.STATE) == []
    assert model.calls == ("add", "twice")
    assert (model.arena_bytes, model.constant_bytes) == (4 * BYTES, CONSTANTS.nbytes)


def test_names_of_tensors_are_decoded(code: Path, constants: Path) -> None:
    config = json.loads(json.dumps(_ONE_CALL))
    config["signature"]["inputs"][0]["name"] = name = 'Bild "1"\\\n\u00e9\u4e00\U0001f600'
    assert _load(config, code, constants).tensors(Role.INPUT)[0].name == name
    escaped = json.dumps(config, sort_keys=True).encode()
    assert NativeModel.load_files(escaped, code, constants).tensors(Role.INPUT)[0].name == name


def test_a_model_without_constants_is_loaded(code: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert _answer(_load(_ONE_CALL, code, tmp_path / "empty"), 4) == [8] * LENGTH


def test_the_model_is_unmapped_with_the_last_instance(tmp_path: Path, code: Path, constants: Path) -> None:
    own = tmp_path / "own.so"
    shutil.copy(code, own)
    model = _load(SIMPLE, own, constants)
    first, second = model.instance(), model.instance()
    model.close()
    first.close()
    assert len(_mappings("own.so")) > 1
    second.close()
    assert _mappings(str(tmp_path)) == []


def test_constants_are_mapped_shared_and_read_only(code: Path, constants: Path) -> None:
    model = _load(SIMPLE, code, constants)
    assert [line.split()[1] for line in _mappings(str(constants))] == ["r--s"]
    model.close()


def test_a_library_that_replaced_another_is_loaded(tmp_path: Path, code: Path, constants: Path) -> None:
    own = tmp_path / "own.so"
    shutil.copy(code, own)
    before = _load(_ONE_CALL, own, constants)
    another = compiled(FUNCTIONS.replace("2 * a[i]", "5 * a[i]"), folder=tmp_path)
    another.replace(own)
    assert _answer(_load(_ONE_CALL, own, constants), 1) == [5] * LENGTH
    assert _answer(before, 1) == [2] * LENGTH


def test_an_artifact_of_an_older_release_is_reported(tmp_path: Path, code: Path) -> None:
    older = {"abi": {"tvm": "0.27"}, "entry": "main", "signature": {"inputs": [], "outputs": []}}
    write_layout(tmp_path / "a", b"{}", code, b"", media_type="application/vnd.octet.config.v1+json")
    (tmp_path / "empty").touch()
    words = "is of release 0.1, .* compile the model again"
    with pytest.raises(Unsupported, match=words):
        NativeModel.load(tmp_path / "a")
    with pytest.raises(Unsupported, match=words):
        _load(older, code, tmp_path / "empty")


@pytest.mark.parametrize("which", ["config", "library", "constants"])
def test_a_damaged_blob_is_refused(which: str, folder: Path) -> None:
    kinds = {"library": b"\x7fELF", "config": b'{"abi_version"', "constants": CONSTANTS.tobytes()[:8]}
    (blob,) = (path for path in (folder / "blobs/sha256").iterdir() if path.read_bytes().startswith(kinds[which]))
    damaged = bytearray(blob.read_bytes())
    damaged[-1] ^= 1
    blob.chmod(0o644)
    blob.write_bytes(damaged)
    with pytest.raises(CorruptBlob, match=f"blob sha256:{blob.name} hashes to sha256:"):
        NativeModel.load(folder)


def test_a_truncated_blob_is_refused(folder: Path) -> None:
    blob = next(path for path in (folder / "blobs/sha256").iterdir() if path.read_bytes().startswith(b"\x7fELF"))
    blob.chmod(0o644)
    os.truncate(blob, 100)
    with pytest.raises(CorruptBlob, match="has 100 bytes, not"):
        NativeModel.load(folder)


def test_links_below_the_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    blob = next(path for path in (folder / "blobs/sha256").iterdir() if path.read_bytes().startswith(b"\x7fELF"))
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=blob.name):
        NativeModel.load(folder)


def test_a_digest_cannot_contain_a_path(folder: Path, tmp_path: Path) -> None:
    index = json.loads((folder / "index.json").read_text())
    index["manifests"][0]["digest"] = "sha256:../../index.json"
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptBlob, match=r"index\.json, byte \d+: a descriptor lacks a SHA-256 digest"):
        NativeModel.load(folder)


def test_a_folder_with_two_artifacts_is_refused(folder: Path, code: Path) -> None:
    write_layout(folder, canonical_json(_ONE_CALL), code, b"")
    with pytest.raises(InvalidTensor, match="contains 2 artifacts; exactly one is required"):
        NativeModel.load(folder)


def test_missing_files_are_named(tmp_path: Path, code: Path, constants: Path) -> None:
    with pytest.raises(OSError, match="nowhere: No such file or directory"):
        NativeModel.load(tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"nowhere\.so: No such file or directory"):
        _load(SIMPLE, tmp_path / "nowhere.so", constants)


def test_missing_cpu_features_are_reported(code: Path, constants: Path) -> None:
    config = _ONE_CALL | {"requires": ["amx_of_tomorrow", "another"]}
    with pytest.raises(Unsupported, match="this CPU lacks amx_of_tomorrow, another"):
        _load(config, code, constants)
    usual = "fpu" if platform.machine() == "x86_64" else "asimd"
    _load(_ONE_CALL | {"requires": [usual]}, code, constants).close()


def test_code_for_another_machine_is_refused(tmp_path: Path, code: Path, constants: Path) -> None:
    foreign = bytearray(code.read_bytes())
    foreign[18:20] = (243).to_bytes(2, "little")  # RISC-V
    (tmp_path / "foreign.so").write_bytes(foreign)
    with pytest.raises(Unsupported, match="code for ELF machine 243"):
        _load(_ONE_CALL, tmp_path / "foreign.so", constants)


@pytest.mark.parametrize("size", [0, 10, 64, 700])
def test_a_truncated_library_is_refused(size: int, tmp_path: Path, code: Path, constants: Path) -> None:
    (tmp_path / "cut.so").write_bytes(code.read_bytes()[:size])
    with pytest.raises(CorruptBlob, match="the library is not a shared library, or is truncated"):
        _load(_ONE_CALL, tmp_path / "cut.so", constants)


def test_an_unknown_requirement_of_a_library_is_refused(tmp_path: Path, constants: Path) -> None:
    wishing = compiled(FUNCTIONS + "\nvoid* __TVMBackendGetFuncFromEnv;", folder=tmp_path)
    with pytest.raises(Unsupported, match="requires __TVMBackendGetFuncFromEnv from its runtime"):
        _load(_ONE_CALL, wishing, constants)


def test_an_undefined_symbol_is_named(tmp_path: Path, constants: Path) -> None:
    lacking = compiled(
        FUNCTIONS + "\nint nowhere_defined(void); int32_t lacks(void* const* o) { return nowhere_defined(); }",
        "-Wl,-z,lazy",
        folder=tmp_path,
    )
    with pytest.raises(OSError, match="nowhere_defined"):
        _load(_ONE_CALL, lacking, constants)


@pytest.mark.parametrize("symbol", ["getpid", "nothing_of_that_name", "__TVMBackendParallelLaunch"])
def test_calls_are_of_functions_that_the_library_defines(symbol: str, code: Path, constants: Path) -> None:
    config = config_of([("input", 0), ("output", 0)], [("twice", [0, 1]), (symbol, [0, 1])])
    with pytest.raises(CorruptBlob, match=f"call 1 uses the function {symbol}, which the library does not define"):
        _load(config, code, constants)


def test_a_closed_model_raises(folder: Path) -> None:
    model = NativeModel.load(folder)
    model.close()
    assert model.tensors(Role.INPUT) == []
    with pytest.raises(OctetError, match="an argument is NULL"):
        model.instance()
