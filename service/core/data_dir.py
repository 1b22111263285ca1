"""The data directory of a deployment: the paths of the files in it."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, Field


def _default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "octet"


class DataDir(BaseModel):
    """The settings that locate a deployment's files, and the paths that follow from them."""

    data_dir: Path = Field(default_factory=_default_data_dir)
    keys_file: Path | None = Field(
        None, description="the file of API keys; by default `keys.json` in the data directory"
    )

    @property
    def database_file(self) -> Path:
        """The SQLite database."""
        return self.data_dir / "octet.sqlite3"

    @property
    def store_dir(self) -> Path:
        """The folder of the store, or of the cache if the store is in a bucket."""
        return self.data_dir / "store"

    @property
    def scratch_dir(self) -> Path:
        """The folder that builds work in. The folder is on the store's file system, so that finished files can be
        renamed into the store without a copy.
        """
        return self.data_dir / "scratch"

    @property
    def planes_dir(self) -> Path:
        """The folders that the data planes of single tenants may read (`service.workers.tenant_planes`). These folders
        are on the store's file system.
        """
        return self.data_dir / "planes"

    @property
    def objects_dir(self) -> Path:
        """The cache of compiled kernels, which builds of all models share (`service.compiler.build.object_cache`)."""
        return self.data_dir / "objects"

    @property
    def tiles_dir(self) -> Path:
        """The tile sizes that tuning found (`service.compiler.build.tile_store`)."""
        return self.data_dir / "tiles"

    @property
    def model_files_file(self) -> Path:
        """The record of the versions that the setting `model_files` added (`service.api.control.model_files`)."""
        return self.data_dir / "model_files.json"

    @property
    def crashes_file(self) -> Path:
        """The record of crashes and the artifacts blamed for them (`service.workers.crashes`)."""
        return self.data_dir / "crashes.json"

    @property
    def file_of_keys(self) -> Path:
        """The file of API keys (`service.api.access.keys`)."""
        return self.keys_file or self.data_dir / "keys.json"

    @property
    def usage_file(self) -> Path:
        """The record of how much of the keys' quotas is used up (`service.api.access.limits`)."""
        return self.data_dir / "usage.json"

    @property
    def audit_file(self) -> Path:
        """The audit log (`service.api.access.audit`)."""
        return self.data_dir / "audit.jsonl"

    @property
    def results_dir(self) -> Path:
        """The cache of results of the compiler's child processes (`service.compiler.build.results`)."""
        return self.data_dir / "results"
