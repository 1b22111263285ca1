"""Operators that read, write or order elements at positions that may be computed while the model runs.

LiteRT's call fails if an index is out of range. Here, the index is clamped.
"""

from __future__ import annotations

from dataclasses import replace

from service.compiler.importers.tflite.operators.indexing import (
    filling,
    gathering,
    ranking,
    scattering,
    sequences,
    suppressing,
)
from service.compiler.importers.tflite.operators.rule import ANY, BOOL, FLOAT, INTEGERS, STORAGES, Rule, moving

_RANKED = STORAGES | INTEGERS | {"float32", "int16"}
_SCATTERED = STORAGES | INTEGERS | BOOL | {"float32", "int16"}
_COUNTED = INTEGERS | {"float32"}
_SELECTED = Rule(
    suppressing.suppression_v4, (5, 5), activations=2, reads=FLOAT, writes=frozenset({"int32", "float32"}), outputs=2
)

RULES: dict[str, Rule] = {
    "BROADCAST_ARGS": Rule(filling.broadcast_args, (2, 2), activations=2, reads=INTEGERS, writes=INTEGERS),
    "BROADCAST_TO": moving(filling.broadcast_to, (2, 2)),
    "BUCKETIZE": Rule(ranking.bucketize, (1, 1), reads=_COUNTED, writes=frozenset({"int32"})),
    "DYNAMIC_UPDATE_SLICE": moving(scattering.dynamic_update_slice, (3, 3), activations=2),
    "EMBEDDING_LOOKUP": Rule(gathering.embedding_lookup, (2, 2), first=1, reads=ANY, writes=ANY),
    "FILL": moving(filling.fill, (2, 2), first=1),
    "GATHER": moving(gathering.gather, (2, 2)),
    "GATHER_ND": moving(gathering.gather_nd, (2, 2)),
    "MATRIX_DIAG": moving(sequences.matrix_diag, (1, 1)),
    "MATRIX_SET_DIAG": moving(sequences.matrix_set_diag, (2, 2), activations=2),
    "ONE_HOT": moving(gathering.one_hot, (4, 4), activations=2, first=2),
    "RANGE": Rule(filling.range_, (3, 3), activations=3, reads=_COUNTED, writes=_COUNTED),
    "RANK": Rule(filling.rank, (1, 1), reads=ANY, writes=INTEGERS),
    "REVERSE_SEQUENCE": moving(sequences.reverse_sequence, (2, 2)),
    "NON_MAX_SUPPRESSION_V4": _SELECTED,
    "NON_MAX_SUPPRESSION_V5": replace(_SELECTED, convert=suppressing.suppression_v5, arity=(6, 6), outputs=3),
    "SCATTER_ND": Rule(scattering.scatter_nd, (3, 3), first=1, reads=_SCATTERED, writes=_SCATTERED),
    "SEGMENT_SUM": Rule(scattering.segment_sum, (2, 2), reads=_COUNTED, writes=_COUNTED),
    "TOPK_V2": Rule(ranking.top_k, (2, 2), reads=_RANKED, writes=_RANKED, outputs=2),
    "UNSORTED_SEGMENT_MAX": Rule(scattering.unsorted_segment("max"), (3, 3), reads=_COUNTED, writes=_COUNTED),
    "UNSORTED_SEGMENT_MIN": Rule(scattering.unsorted_segment("min"), (3, 3), reads=_COUNTED, writes=_COUNTED),
    "UNSORTED_SEGMENT_PROD": Rule(scattering.unsorted_segment("multiply"), (3, 3), reads=_COUNTED, writes=_COUNTED),
    "UNSORTED_SEGMENT_SUM": Rule(scattering.unsorted_segment("add"), (3, 3), reads=_COUNTED, writes=_COUNTED),
    "WHERE": Rule(ranking.where, (1, 1), reads=ANY, writes=frozenset({"int64"})),
    "ZEROS_LIKE": Rule(filling.zeros_like, (1, 1), reads=_COUNTED, writes=_COUNTED),
}
