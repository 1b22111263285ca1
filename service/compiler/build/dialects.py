"""Learns what the configured dialects add, without running their code in this process."""

from __future__ import annotations

from service.compiler.importers import detect
from service.compiler.messages.dialects import DIALECTS, Described
from service.compiler.messages.role import Empty
from service.compiler.sandbox import Access, run_child, working
from service.core.builds import dialects, numerics
from service.core.digest import Digest
from service.core.settings import Settings

_known: tuple[dict[str, Digest], tuple[Described, ...]] = {}, ()


def add_formats(settings: Settings) -> tuple[Described, ...]:
    """Makes this process recognize the file formats of the configured dialects, and returns what each dialect adds.

    Raises:
        InvalidInput: a dialect cannot be found, or its code failed.
    """
    global _known
    configured = dialects.digests()
    if configured != _known[0]:
        limits = working(settings.build_time_limit_s, settings.build_stall_limit_s, settings.build_memory_limit_bytes)
        members = run_child(
            DIALECTS.name,
            Empty().to_json(),
            access=Access(),
            limits=limits,
            allow_unsandboxed=settings.allow_unsandboxed,
        )
        found = DIALECTS.read_result(members).dialects
        for each in (made for dialect in found for made in dialect.formats):
            detect.add_format(each.name, [bytes.fromhex(head) for head in each.heads])
            numerics.add_format(each.name, each.numerics)
        _known = configured, found
    return _known[1]
