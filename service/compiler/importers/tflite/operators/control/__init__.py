"""Operators that run subgraphs: CALL, IF, WHILE and STABLEHLO_COMPOSITE."""

from __future__ import annotations

from service.compiler.importers.tflite.operators.control import branches, loops
from service.compiler.importers.tflite.operators.rule import ANY, ANY_NUMBER, Rule

RULES: dict[str, Rule] = {
    name: Rule(convert, (least, ANY_NUMBER), activations=None, reads=ANY, writes=ANY, outputs=ANY_NUMBER)
    for name, convert, least in (
        ("CALL", branches.call, 0),
        ("IF", branches.if_, 1),
        ("STABLEHLO_COMPOSITE", branches.composite, 0),
        ("WHILE", loops.while_, 1),
    )
}
