"""How this release reads the artifacts of other releases. Artifacts whose versions of ABI and plan are supported run,
and always give the same bits. Every reader refuses artifacts of other versions; the message contains the versions and a
remedy.

`scripts/keep_artifact.py` creates the stored artifacts, one for each version of ABI and plan. They are never created
again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.keep_artifact import FOLDER, TARGET
from service import runtime
from service.cache import OciLayout
from service.cache.export import export
from service.compiler.build.artifact_archive import received
from service.compiler.build.pipeline import CompileRequest
from service.compiler.build.received import publish_received
from service.core.artifacts.artifact import TRAVELING, only_artifact
from service.core.artifacts.buffers import aligned_empty
from service.core.artifacts.compatibility import CONFIG_MEDIA_TYPE
from service.core.digest import Digest, canonical_json, digest_of_file
from service.core.errors import OctetError, Unsupported
from service.core.settings import Settings
from service.core.target import detect_host
from service.runtime.octet_library import NativeModel
from tests.support.compiled import Unreported

KEPT = sorted(FOLDER.glob("*.tar"))
_MISSING = TARGET.missing_on(detect_host())
_REASON = f"NOT TESTED: artifacts of other releases are kept for {TARGET}, and this CPU lacks {', '.join(_MISSING)}"
_RUNNABLE = pytest.mark.skipif(bool(_MISSING), reason=_REASON)
_V1, _V3 = (f"application/vnd.octet.config.v{version}+json" for version in (1, 3))
_OF_0_1 = {
    "abi": {"tvm": "0.27.0.post1", "tvm_ffi": "0.1.14.post1"},
    "activations": [],
    "constants": [],
    "entry": "main",
    "numerics": "xnnpack",
    "signature": {"inputs": [], "outputs": []},
    "target": TARGET.name,
}
_RUNS = "and this release runs ABI 1 and plan 1"


def with_plan(config: dict[str, Any], **members: Any) -> dict[str, Any]:
    return config | {"plan": config["plan"] | members}


# For each type of artifact: the media type of its config, the change of its config, and the expected message.
OTHERS: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "0.1": (_V1, lambda _: _OF_0_1, f"is of release 0.1, which ran models by TVM, {_RUNS}"),
    "the config of 0.1": (CONFIG_MEDIA_TYPE, lambda _: _OF_0_1, f"is of release 0.1, which ran models by TVM, {_RUNS}"),
    "an older ABI": (CONFIG_MEDIA_TYPE, lambda it: it | {"abi_version": 0}, f"is of ABI 0 and plan 1, {_RUNS}"),
    "a newer ABI": (CONFIG_MEDIA_TYPE, lambda it: it | {"abi_version": 2}, f"is of ABI 2 and plan 1, {_RUNS}"),
    "a newer plan": (CONFIG_MEDIA_TYPE, lambda it: with_plan(it, version=2), f"is of ABI 1 and plan 2, {_RUNS}"),
    "a plan of another form": (
        CONFIG_MEDIA_TYPE,
        lambda it: it | {"abi_version": 3, "plan": {"regions": {"a": 1}, "version": 4}},
        f"is of ABI 3 and plan 4, {_RUNS}",
    ),
    "a member of the plan": (
        CONFIG_MEDIA_TYPE,
        lambda it: with_plan(it, regions=[]),
        'plan has a member "regions", which this release does not know',
    ),
    "a newer config": (_V3, lambda it: it, f'is of type "{_V3}", and this release reads {CONFIG_MEDIA_TYPE}'),
}


@pytest.fixture(params=KEPT, ids=lambda path: path.stem)
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder / archive.stem, filter="data")
    return folder / archive.stem


def changed(folder: Path, to: Path, media_type: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """Copies the artifact to `to` and changes its config. The reports are copied as well."""
    before, layout = OciLayout.open(folder), OciLayout(to)
    manifest = before.manifest(digest_in(before))
    config = change(deepcopy(json.loads(before.blobs.read(manifest.config.digest))))
    layers = tuple(
        layout.put_blob_descriptor(each.media_type, before.blobs.read(each.digest)) for each in manifest.layers
    )
    described = layout.put_blob_descriptor(media_type, canonical_json(config))
    artifact = layout.put_manifest(replace(manifest, config=described, layers=layers)).digest
    for kind in TRAVELING:
        report = before.attached(digest_in(before), kind)
        if report is not None:
            layout.attach(artifact, kind, report)
    return to


def digest_in(layout: OciLayout) -> Digest:
    return only_artifact((entry.digest, entry.artifact_type) for entry in layout.index())


def load_in_python(folder: Path) -> None:
    runtime.load(folder)


def load_in_c(folder: Path) -> None:
    NativeModel.load(folder)


def load_in_command(folder: Path) -> None:
    given = folder / "input.npy"
    np.save(given, np.load(FOLDER / f"{KEPT[-1].stem}.npz")["inputs"][0])
    command = [sys.executable, "-m", "service.cli", "run", str(folder), str(given)]
    done = subprocess.run(command, capture_output=True, text=True, env={"COLUMNS": "1000", "PATH": "/usr/bin:/bin"})
    if done.returncode != 0:
        raise Unsupported(" ".join(done.stderr.split()))


def push_to_server(folder: Path) -> None:
    """Publishes the artifact with the functions that the server and its compile worker use."""
    layout, archive, scratch = OciLayout.open(folder), folder / "archive.tar", folder / "scratch"
    archive.write_bytes(b"".join(export(layout, digest_in(layout), TRAVELING).chunks()))
    scratch.mkdir()
    found = received(archive)
    request = CompileRequest(archive, digest_of_file(archive), found.target, found.numerics, found.options)
    publish_received(request, OciLayout(folder / "store"), scratch, Unreported(), Settings(data_dir=folder))


READERS = {"python": load_in_python, "c": load_in_c, "octet run": load_in_command, "octet push": push_to_server}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", OTHERS)
def test_another_release_is_refused_with_its_versions_and_what_to_do(what: str, reader: str, tmp_path: Path) -> None:
    media_type, change, words = OTHERS[what]
    folder = changed(unpacked(KEPT[-1], tmp_path), tmp_path / "changed", media_type, change)
    with pytest.raises(Unsupported) as refused:
        READERS[reader](folder)
    text = f"{refused.value.message} {refused.value.hint}"
    assert words in text
    assert "compile the model again with this release" in text


def test_the_artifacts_of_every_plan_version_are_there() -> None:
    assert [path.stem for path in KEPT] == ["plan1"]


@_RUNNABLE
def test_the_artifact_gives_the_same_bits_in_python(artifact: Path) -> None:
    cases = np.load(FOLDER / f"{artifact.name}.npz")
    model = runtime.load(artifact)
    answers = np.stack([model(given) for given in cases["inputs"]])
    assert len({answer.tobytes() for answer in answers}) > 1
    np.testing.assert_array_equal(answers, cases["outputs"], strict=True)


@_RUNNABLE
def test_the_artifact_gives_the_same_bits_in_c(artifact: Path) -> None:
    """Loads the artifact with octet_load, which reads the folder itself."""
    cases = np.load(FOLDER / f"{artifact.name}.npz")
    instance = NativeModel.load(artifact).instance()
    given = aligned_empty(cases["inputs"].shape[1:], cases["inputs"].dtype)
    got = aligned_empty(cases["outputs"].shape[1:], cases["outputs"].dtype)
    instance.bind([given.ctypes.data], [got.ctypes.data])
    for given[...], expected in zip(cases["inputs"], cases["outputs"], strict=True):
        instance.run()
        np.testing.assert_array_equal(got, expected, strict=True)


@_RUNNABLE
def test_a_server_accepts_the_artifact(artifact: Path) -> None:
    push_to_server(artifact)
    assert digest_in(OciLayout.open(artifact / "store"))


@_RUNNABLE
@pytest.mark.parametrize("reader", [load_in_python, load_in_c])
def test_members_of_the_config_that_change_nothing_may_be_new(
    reader: Callable[[Path], None], artifact: Path, tmp_path: Path
) -> None:
    """Readers ignore unknown members of the config, but still refuse unknown members of the plan."""
    reader(changed(artifact, tmp_path / "changed", CONFIG_MEDIA_TYPE, lambda config: config | {"note": {"by": "whom"}}))


def test_a_config_without_versions_is_damaged(tmp_path: Path) -> None:
    def without(config: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in config.items() if name != "abi_version"}

    folder = changed(unpacked(KEPT[-1], tmp_path), tmp_path / "changed", CONFIG_MEDIA_TYPE, without)
    for reader in (load_in_python, load_in_c):
        with pytest.raises(OctetError, match="the config lacks its versions"):
            reader(folder)
