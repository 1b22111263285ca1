"""The role that reads the folder of a published model. It does not load TVM, so that it starts quickly."""

from __future__ import annotations

import shutil
from pathlib import Path

from service.compiler.children.handler import handles
from service.compiler.importers.published.archives import ArchivedFolder
from service.compiler.importers.published.files import Folder, SingleFile
from service.compiler.importers.published.reading import (
    lacks_pooling,
    read_published,
    shapes_for_pictures,
    shapes_for_texts,
)
from service.compiler.importers.published.tflite_texts import is_text_model
from service.compiler.importers.uploads import upload_of
from service.compiler.messages.published import (
    FOLDER,
    MODEL_FILE,
    TOKENIZER_FILE,
    FolderRequest,
    FolderResult,
    Found,
)
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.models.text import parse_pooling
from service.core.target import parse_target


@handles(FOLDER)
def folder_role(request: FolderRequest, report: Report) -> FolderResult:
    """Writes the model file and the tokenizer of the folder, and returns its metadata."""
    report.at(stage=Stage.FETCH)
    folder = _opened(request)
    pooling = parse_pooling(request.pooling) if request.pooling else ()
    target = parse_target(request.target) if request.target else None
    published = read_published(folder, request.variant or None, target, pooling=pooling)
    with upload_of(published.file, addition=published.addition) as upload:
        shutil.copyfile(upload, MODEL_FILE)
    if published.tokenizer:
        Path(TOKENIZER_FILE).write_bytes(published.tokenizer)
    chosen = published.variant
    longest = request.max_length or published.metadata.text.max_length
    found = Found(
        variant=chosen.name,
        file=chosen.file,
        precision=chosen.precision,
        size_bytes=chosen.size_bytes,
        variants=tuple(each.name for each in published.variants),
        has_layers=bool(published.addition),
        lacks_pooling=lacks_pooling(published, published.metadata),
        input_shape=shapes_for_texts(published, longest) or shapes_for_pictures(published),
        sources=tuple(published.sources),
        ignored=tuple(published.ignored),
        notice=published.notice,
    )
    return FolderResult(found, published.metadata.to_json(), bool(published.tokenizer))


def _opened(request: FolderRequest) -> Folder:
    if request.source.is_dir():
        return Folder(request.source)
    if is_text_model(request.source):
        return SingleFile(request.source, "model.tflite")
    scratch = Path("files")
    scratch.mkdir()
    return ArchivedFolder(request.source, scratch.absolute(), request.most_bytes)
