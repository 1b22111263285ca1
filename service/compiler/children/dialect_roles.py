"""The role that describes the configured dialects. The child has run them before (`child`)."""

from __future__ import annotations

from service.compiler.children.handler import handles
from service.compiler.dialects.dialect import DIALECTS as LOADED
from service.compiler.dialects.dialect import FORMATS
from service.compiler.messages.dialects import DIALECTS, Described, DialectsResult, Format
from service.compiler.messages.role import Empty
from service.compiler.sandbox import Report


@handles(DIALECTS)
def dialects_role(request: Empty, report: Report) -> DialectsResult:
    """Lists what each dialect adds."""
    return DialectsResult(
        tuple(
            Described(
                each.name,
                tuple(f"{each.name}.{name}: {made.definition.summary}" for name, made in each.operators.items()),
                tuple(each.patterns),
                tuple(each.passes),
                tuple(
                    Format(name, tuple(h.hex() for h in FORMATS[name][0]), FORMATS[name][1]) for name in each.formats
                ),
            )
            for each in LOADED.values()
        )
    )
