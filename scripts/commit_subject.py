"""Checks the subject of a commit: `area: imperative verb object`, at most 72 characters.

The hook `.githooks/commit-msg` calls it with the file of the message.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_LONGEST = 72
_SUBJECT = re.compile(r"[a-z][\w/.-]*(, [a-z][\w/.-]*)*: [a-z]\S*( .*)?[^.]")
_GENERATED = ("Merge ", "Revert ", "fixup! ", "squash! ")


def problem(subject: str) -> str | None:
    """Returns the reason why a subject is not accepted, or None."""
    if subject.startswith(_GENERATED):
        return None
    if len(subject) > _LONGEST:
        return f"the subject has {len(subject)} characters; the limit is {_LONGEST}"
    if not _SUBJECT.fullmatch(subject):
        return "the subject must have the form 'area: imperative verb object', without a full stop"
    return None


def main() -> int:
    subject = Path(sys.argv[1]).read_text().partition("\n")[0]
    if (reason := problem(subject)) is not None:
        print(f"{reason}: {subject!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
