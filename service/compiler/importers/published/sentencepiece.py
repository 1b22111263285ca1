"""Reads SentencePiece models (sentencepiece_model.proto of google/sentencepiece): the pieces, and the normalization."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from service.compiler.importers.onnx.file.wire import Budget, Field, Wire, fields
from service.core.errors import InvalidInput, MalformedModel
from service.core.printable import printable

UNIGRAM, PAIRS = 1, 2  # TrainerSpec.ModelType
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # ModelProto.SentencePiece.Type
_MOST_PIECES = 1 << 20
# Fields of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _UNK_ID, _BYTE_FALLBACK = 3, 40, 35
_CHARACTERS_MAP = 2


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    type: int


@dataclass(frozen=True)
class SentencePieceModel:
    """A SentencePiece model.

    Attributes:
        pieces: the vocabulary; the index of a piece is its id.
        unk_id: the id of unknown pieces.
        type: `UNIGRAM`, `PAIRS` (BPE), or another type that Octet does not convert.
        has_byte_fallback: true if unknown characters become pieces of their bytes.
        characters_map: the compiled normalization of characters; empty for none.
    """

    pieces: Sequence[Piece]
    unk_id: int
    type: int
    has_byte_fallback: bool
    characters_map: bytes


def read_sentencepiece(data: bytes, name: str) -> SentencePieceModel:
    """Parses a model.

    Args:
        name: the file, for messages.

    Raises:
        InvalidInput: the file is not a SentencePiece model.
    """
    budget = Budget()
    try:
        found = list(fields(memoryview(data), name, budget))
        pieces = [_piece(field, name, budget) for field in found if field.number == _PIECES]
        trainer = {each.number: each.value for each in _inside(found, _TRAINER, name, budget)}
        normalizer = {each.number: each.value for each in _inside(found, _NORMALIZER, name, budget)}
    except (MalformedModel, UnicodeDecodeError) as error:
        raise InvalidInput(f"{printable(name)} is not a SentencePiece model", hint="download it again") from error
    unk_id, characters_map = trainer.get(_UNK_ID, 0), normalizer.get(_CHARACTERS_MAP, b"")
    if not 0 < len(pieces) <= _MOST_PIECES or not isinstance(unk_id, int) or isinstance(characters_map, int):
        raise InvalidInput(f"{printable(name)} is not a SentencePiece model: it has {len(pieces)} pieces")
    type_ = trainer.get(_MODEL_TYPE, UNIGRAM)
    if not isinstance(type_, int):
        raise InvalidInput(f"{printable(name)} is not a SentencePiece model: its type is not a number")
    return SentencePieceModel(pieces, unk_id, type_, bool(trainer.get(_BYTE_FALLBACK, 0)), bytes(characters_map))


def _inside(found: Sequence[Field], number: int, name: str, budget: Budget) -> Sequence[Field]:
    """Returns the fields of all messages in a field."""
    messages = [field.value for field in found if field.number == number]
    return [each for value in messages if not isinstance(value, int) for each in fields(value, name, budget)]


def _piece(field: Field, name: str, budget: Budget) -> Piece:
    text, score, type_ = "", 0.0, NORMAL
    if field.wire is not Wire.BYTES or isinstance(field.value, int):
        raise InvalidInput(f"{printable(name)} is not a SentencePiece model: a piece is not a message")
    for member in fields(field.value, name, budget):
        match member.number, member.value:
            case (1, memoryview() as value):
                text = bytes(value).decode()
            case (2, int(value)) if member.wire is Wire.FIXED32:
                (score,) = struct.unpack("<f", struct.pack("<I", value))
            case (3, int(value)):
                type_ = value
    return Piece(text, score, type_)
