"""Fixtures: an OCI registry, and an artifact to push to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.digest import Digest, digest_of_file
from service.core.settings import Settings
from service.core.target import parse_target
from tests.support import oci_registry
from tests.support.build_caches import share_caches
from tests.support.compiled import EXAMPLES, Unreported
from tests.support.signing import write_pair


class Model:
    """A sample that was compiled and signed.

    Attributes:
        settings: those of a user who signs with the key and trusts it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "digits"
        self.layout = OciLayout(self.root)
        self.key, self.public = write_pair(folder, kind="ecdsa")
        share_caches(folder)
        self.settings = Settings(
            data_dir=folder, allow_unsandboxed=True, signing_key=self.key, trusted_keys=str(self.public)
        )
        self.digest = self.compile("host")

    def compile(self, target: str) -> Digest:
        model, scratch = EXAMPLES / "digits_int8.tflite", self.folder / target
        scratch.mkdir()
        request = CompileRequest(model, digest_of_file(model), parse_target(target), "litert-reference")
        return compile_model(request, self.layout, scratch, Unreported(), self.settings)


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="package")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if why := oci_registry.why_not():
        pytest.skip(why)
    with oci_registry.registry(tmp_path_factory.mktemp("registry")) as host:
        yield host
