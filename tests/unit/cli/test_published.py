"""Tests of the names that the folders of published models give to models."""

from __future__ import annotations

from pathlib import Path

from service.cli.published import name_of


def test_the_folder_gives_the_name(tmp_path: Path) -> None:
    assert name_of(tmp_path / "bge-small-en-v1.5") == "bge-small-en-v1.5"
    assert name_of(tmp_path / "Deep Model") == "deep-model"


def test_a_folder_in_the_cache_of_hugging_face_gives_the_model_s_name(tmp_path: Path) -> None:
    cached = tmp_path / "models--BAAI--bge-small-en-v1.5" / "snapshots" / "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a"
    assert name_of(cached) == "bge-small-en-v1.5"
