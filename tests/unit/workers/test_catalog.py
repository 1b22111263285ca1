"""Tests that a lost database is rebuilt from the store's index."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.cache import Manifest, OciLayout, index
from service.core.artifacts.artifact import (
    ARTIFACT_TYPE,
    BUILD_KEY_ANNOTATION,
    NUMERICS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    model_annotation,
    models_in,
)
from service.core.builds.build import Build, BuildInputs, BuildState
from service.core.digest import Digest
from service.core.errors import Conflict, NotFound
from service.core.models.metadata import ModelMetadata
from service.core.models.model import Deleted, ModelVersion
from service.core.models.text import TextProcessing
from service.db import AliasStore, BuildStore, Database, ModelStore
from service.workers.catalog import (
    Restored,
    delete_model,
    record_aliases,
    record_build,
    record_metadata,
    record_version,
    synchronize,
)
from tests.support.blobs import damage_blob
from tests.support.build_inputs import TARGET
from tests.support.manual_clock import ManualClock


@dataclass
class Service:
    """The store, and a database that can be lost."""

    root: Path
    clock: ManualClock

    def __post_init__(self) -> None:
        self.layout = OciLayout(self.root / "store")
        self.databases: list[Database] = []
        self.lose_the_database()

    def lose_the_database(self) -> None:
        database = Database(f"sqlite:///{self.root / f'{len(self.databases)}.sqlite3'}")
        database.migrate()
        self.databases.append(database)
        self.builds = BuildStore(database, self.clock)
        self.models = ModelStore(database, self.clock)
        self.aliases = AliasStore(database, self.clock)

    def push(self, name: str, file: bytes = b"model") -> ModelVersion:
        version = self.models.push(name, self.layout.blobs.put_bytes(file), "tflite", len(file))
        self.clock.advance(1)
        return version

    def build(self, version: ModelVersion, numerics: str = "litert-reference") -> Build:
        """Requests a build, and runs it if it has not been built before."""
        inputs = BuildInputs(version.source, TARGET, numerics, {"compiler": "1"})
        build, created = self.builds.submit(inputs, version.name, version.number)
        self.clock.advance(1)
        if created:
            claim = self.builds.claim("worker", 30.0)
            assert claim is not None
            self.builds.finish(claim, artifact=self.publish(inputs))
        return self.builds.get(build.id)

    def publish(self, inputs: BuildInputs) -> Digest:
        annotations = {
            SOURCE_ANNOTATION: str(inputs.source),
            TARGET_ANNOTATION: inputs.target,
            NUMERICS_ANNOTATION: inputs.numerics,
        }
        config = self.layout.put_blob_descriptor("application/json", b"{}")
        library = self.layout.put_blob_descriptor("application/x", f"code for {annotations}".encode())
        return self.layout.put_manifest(Manifest(ARTIFACT_TYPE, config, (library,), annotations)).digest

    def synchronize(self) -> Restored:
        return synchronize(self.layout, self.builds, self.models, self.aliases)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path, ManualClock())
    yield service
    for database in service.databases:
        database.close()


def test_model_annotations_are_parsed_back() -> None:
    now = ManualClock().now()
    later = now.replace(year=2027)
    annotations = {**model_annotation("b.c-d_e", 12, later), **model_annotation("a", 1, now), "dev.octet.other": "x"}
    assert models_in(annotations) == [("a", 1, now), ("b.c-d_e", 12, later)]


def test_recorded_models_and_builds_are_restored(service: Service) -> None:
    version = service.push("mobilenet")
    record_version(service.layout, service.models, version)
    build = service.build(version)
    record_build(service.layout, service.builds, build)
    service.lose_the_database()
    assert service.synchronize() == Restored(versions=1, builds=1)
    assert service.models.versions("mobilenet") == [version]
    (serving,) = service.builds.serving("mobilenet", 1, [TARGET])
    assert (serving.artifact, serving.key, serving.source) == (build.artifact, build.key, build.source)
    assert serving.numerics == build.numerics


SAID = ModelMetadata(("cat", "dog"), (0.5,), (0.25,))


def test_the_metadata_of_a_version_is_restored(service: Service) -> None:
    for name in ("a", "b"):  # two versions have the same file and the same metadata
        version = service.push(name)
        record_version(service.layout, service.models, version)
        record_metadata(service.layout, service.models, service.models.describe(name, 1, SAID))
    last = service.models.describe("b", 1, ModelMetadata(("bird", "dog")))
    record_metadata(service.layout, service.models, last)
    service.lose_the_database()
    synchronize(service.layout, service.builds, service.models, service.aliases)
    assert service.models.version("a", 1).metadata == SAID
    assert service.models.version("b", 1).metadata == ModelMetadata(("bird", "dog"), (0.5,), (0.25,))


def test_metadata_that_a_killed_process_did_not_record_is_recorded(service: Service) -> None:
    record_version(service.layout, service.models, service.push("a"))
    service.models.describe("a", 1, SAID)
    synchronize(service.layout, service.builds, service.models, service.aliases)
    service.lose_the_database()
    synchronize(service.layout, service.builds, service.models, service.aliases)
    assert service.models.version("a", 1).metadata == SAID


def test_the_index_keeps_the_tokenizer_of_a_version(service: Service) -> None:
    record_version(service.layout, service.models, service.push("a"))
    tokenizer = service.layout.blobs.put_bytes(b'{"model": 1}')
    described = ModelMetadata(text=TextProcessing(tokenizer, 12))
    record_metadata(service.layout, service.models, service.models.describe("a", 1, described))
    service.layout.collect_garbage(min_age_s=0)
    service.lose_the_database()
    synchronize(service.layout, service.builds, service.models, service.aliases)
    assert service.models.version("a", 1).metadata == described
    assert service.layout.blobs.read(tokenizer) == b'{"model": 1}'


def test_the_metadata_of_a_version_is_deleted_with_it(service: Service) -> None:
    record_version(service.layout, service.models, service.push("a"))
    record_metadata(service.layout, service.models, service.models.describe("a", 1, SAID))
    delete_model(service.layout, service.models, service.aliases, "a", force=False)
    assert service.layout.index() == []


def test_the_same_request_is_answered_by_the_restored_build(service: Service) -> None:
    build = service.build(service.push("mobilenet"))
    service.synchronize()
    service.lose_the_database()
    service.synchronize()
    again = service.build(service.models.get("mobilenet"))
    assert (again.key, again.artifact, again.attempt) == (build.key, build.artifact, 0)


def test_a_shared_build_is_restored_for_all_its_models(service: Service) -> None:
    service.build(service.push("first"))
    service.push("second", b"an older version")
    service.build(service.push("second"))
    service.synchronize()
    service.lose_the_database()
    assert service.synchronize() == Restored(versions=3, builds=1)
    assert [build.version for build in service.builds.serving("first", None, [TARGET])] == [1]
    assert [build.version for build in service.builds.serving("second", None, [TARGET])] == [2]
    assert [version.number for version in service.models.versions("second")] == [2, 1]


def test_the_build_requested_last_is_still_served_first(service: Service) -> None:
    version = service.push("mobilenet")
    reference = service.build(version)
    service.build(version, numerics="xnnpack")
    service.build(version)
    service.synchronize()
    service.lose_the_database()
    service.synchronize()
    assert service.builds.serving("mobilenet", 1, [TARGET])[0].artifact == reference.artifact


def test_synchronizing_again_changes_nothing(service: Service) -> None:
    service.build(service.push("mobilenet"))
    service.synchronize()
    index, listed = service.layout.index(), service.builds.list()
    assert service.synchronize() == Restored(0, 0)
    assert (service.layout.index(), service.builds.list()) == (index, listed)


def test_the_file_of_a_version_is_not_garbage(service: Service) -> None:
    version = service.push("mobilenet")
    record_version(service.layout, service.models, version)
    service.layout.collect_garbage(min_age_s=0)
    assert service.layout.blobs.read(version.source) == b"model"


def test_a_build_that_failed_is_not_recorded(service: Service) -> None:
    service.push("mobilenet")
    queued, _ = service.builds.submit(BuildInputs(service.push("a").source, TARGET, "xnnpack", {}), "a", 1)
    assert queued.state is BuildState.QUEUED
    before = service.layout.index()
    record_build(service.layout, service.builds, queued)
    assert service.layout.index() == before


def test_a_damaged_artifact_is_not_restored(service: Service) -> None:
    build = service.build(service.push("mobilenet"))
    service.synchronize()
    assert build.artifact is not None
    service.builds.invalidate(build.artifact)
    assert service.synchronize() == Restored(0, 0)
    assert service.builds.serving("mobilenet", 1, [TARGET]) == []


def test_an_artifact_that_lost_a_part_is_not_restored(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    build = service.build(service.push("mobilenet"))
    service.synchronize()
    assert build.artifact is not None
    service.layout.blobs.delete(service.layout.manifest(build.artifact).layers[0].digest)
    service.lose_the_database()
    with caplog.at_level(logging.WARNING):
        assert service.synchronize() == Restored(versions=1, builds=0)
    assert "incomplete" in caplog.text


def test_a_damaged_manifest_does_not_prevent_restoring_the_rest(service: Service) -> None:
    damaged = service.build(service.push("damaged"))
    service.build(service.push("whole", b"another model"))
    service.synchronize()
    assert damaged.artifact is not None
    damage_blob(service.layout.root, damaged.artifact)
    service.lose_the_database()
    assert service.synchronize() == Restored(versions=2, builds=1)


def test_an_artifact_whose_build_never_succeeded_is_not_restored(service: Service) -> None:
    version = service.push("mobilenet")
    service.publish(BuildInputs(version.source, TARGET, "litert-reference", {}))
    service.synchronize()
    service.lose_the_database()
    assert service.synchronize() == Restored(versions=1, builds=0)


def test_a_version_whose_file_is_lost_is_logged_and_skipped(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    version = service.push("mobilenet")
    service.layout.blobs.delete(version.source)
    with caplog.at_level(logging.WARNING):
        service.synchronize()
    assert "mobilenet version 1 is lost" in caplog.text
    assert BUILD_KEY_ANNOTATION not in str(service.layout.index())


def test_aliases_are_restored_with_their_previous_versions(service: Service) -> None:
    for file in (b"one", b"two", b"three"):
        record_version(service.layout, service.models, service.push("mobilenet", file))
    service.aliases.promote("mobilenet", "stable", 1, 100)
    service.aliases.promote("mobilenet", "stable", 2, 100)
    service.aliases.promote("mobilenet", "mine", 1, 100)
    service.aliases.promote("mobilenet", "mine", 3, 10)
    record_aliases(service.layout, service.aliases, "mobilenet")
    known = service.aliases.list()
    service.lose_the_database()
    assert service.synchronize() == Restored(versions=3, builds=0, aliases=2)
    assert service.aliases.list() == known
    assert service.aliases.rollback("mobilenet", "stable").version == 1


def test_an_alias_that_was_removed_stays_removed(service: Service) -> None:
    for model in ("a", "b"):
        service.push(model)
        service.aliases.promote(model, "stable", 1, 100)
    service.synchronize()
    service.aliases.remove("a", "stable")
    record_aliases(service.layout, service.aliases, "a")
    service.lose_the_database()
    service.synchronize()
    assert [alias.model for alias in service.aliases.list()] == ["b"]


def test_entries_that_a_killed_process_did_not_record_are_recorded(service: Service) -> None:
    service.push("mobilenet")
    service.push("mobilenet", b"another")
    service.aliases.promote("mobilenet", "stable", 1, 100)
    service.synchronize()
    changed = service.aliases.promote("mobilenet", "stable", 2, 100)
    service.synchronize()  # if the table and the index differ, the table wins
    service.lose_the_database()
    service.synchronize()
    assert service.aliases.list() == [changed]


class TestDeletion:
    """Tests of deleting a model from the tables and the index."""

    def delete(self, service: Service, name: str, number: int | None = None, *, force: bool = False) -> Deleted:
        return delete_model(service.layout, service.models, service.aliases, name, number, force=force)

    def index_text(self, service: Service) -> str:
        return (service.layout.root / "index.json").read_text()

    def test_a_deleted_model_is_not_restored(self, service: Service) -> None:
        service.build(service.push("mobilenet"))
        service.aliases.promote("mobilenet", "stable", 1, 100)
        service.synchronize()
        assert self.delete(service, "mobilenet", force=True) == Deleted("mobilenet", (1,), ("stable",), 1)
        assert "mobilenet" not in self.index_text(service)
        service.lose_the_database()
        assert service.synchronize() == Restored(0, 0, 0)

    def test_one_version_of_several_is_not_restored(self, service: Service) -> None:
        for file in (b"one", b"two"):
            service.build(service.push("mobilenet", file))
        service.synchronize()
        self.delete(service, "mobilenet", 1)
        service.lose_the_database()
        assert service.synchronize() == Restored(versions=1, builds=1)
        assert service.models.get("mobilenet").number == 2

    def test_a_model_whose_name_starts_with_the_deleted_one_stays(self, service: Service) -> None:
        for name in ("a", "a.b", "ab"):
            service.build(service.push(name))
        service.synchronize()
        self.delete(service, "a")
        service.lose_the_database()
        service.synchronize()
        assert [each.name for each in service.models.all_versions()] == ["a.b", "ab"]

    def test_an_artifact_that_another_model_shares_stays(self, service: Service) -> None:
        build = service.build(service.push("first"))
        service.build(service.push("second"))
        service.synchronize()
        self.delete(service, "first")
        service.lose_the_database()
        assert service.synchronize() == Restored(versions=1, builds=1)
        assert [each.artifact for each in service.builds.serving("second", 1, [TARGET])] == [build.artifact]

    def test_a_kill_before_the_index_is_written_leaves_the_model_unchanged(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Killed(BaseException):
            pass

        def kill(*arguments: object) -> None:
            raise Killed

        build = service.build(service.push("mobilenet"))
        service.aliases.promote("mobilenet", "stable", 1, 100)
        service.synchronize()
        with monkeypatch.context() as patched:
            patched.setattr(index, "replace_file", kill)
            with pytest.raises(Killed):
                self.delete(service, "mobilenet", force=True)
        with pytest.raises(NotFound):  # the model was not in the tables any more
            service.models.get("mobilenet")
        assert service.synchronize() == Restored(versions=1, builds=1, aliases=1)
        assert [each.artifact for each in service.builds.serving("mobilenet", 1, [TARGET])] == [build.artifact]

    def test_a_refused_deletion_changes_nothing(self, service: Service) -> None:
        service.build(service.push("mobilenet"))
        service.aliases.promote("mobilenet", "stable", 1, 100)
        service.synchronize()
        before = self.index_text(service)
        with pytest.raises(Conflict):
            self.delete(service, "mobilenet")
        assert self.index_text(service) == before

    def test_a_push_or_build_that_is_recorded_too_late_restores_nothing(self, service: Service) -> None:
        version = service.push("mobilenet")
        build = service.build(version)
        self.delete(service, "mobilenet")
        with pytest.raises(NotFound):
            record_version(service.layout, service.models, version)
        record_build(service.layout, service.builds, build)
        service.lose_the_database()
        assert service.synchronize() == Restored(0, 0)
