"""Escapes untrusted text, so that it is safe to show on a terminal, in a log, or in one line of a list.

The author of a model file chooses the names in it. An escape sequence in a name could move the cursor, rewrite lines
that are already on the screen, or set the clipboard. A line break could forge a line of the log. A bidirectional
control character could show `gpj.exe` as `exe.jpg`.
"""

from __future__ import annotations

import json
import re
from typing import Any

# The categories Cc, Cf, Cs, Zl and Zp of Unicode 15: control characters, format characters (bidirectional controls,
# zero-width characters, tags), lone surrogates, and separators of lines and paragraphs.
_UNSAFE = (
    "\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
_IN_LINE = re.compile(f"[{_UNSAFE}]")
_IN_TEXT = re.compile(f"(?![\n\t])[{_UNSAFE}]")

_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF  # Python's code points for non-UTF-8 bytes (PEP 383)


def printable(text: str) -> str:
    r"""Returns `text` on one line, with each unsafe character as an escape: `\x1b`, `\u202e`."""
    return _IN_LINE.sub(_escape, text)


def printable_text(text: str) -> str:
    """Escapes unsafe characters like `printable`, but keeps line breaks and tabs."""
    return _IN_TEXT.sub(_escape, text)


def json_text(value: Any) -> str:
    """Returns `value` as JSON on one line, with unsafe characters as JSON escapes. Parsing gives the same value."""
    return _IN_LINE.sub(_json_escape, json.dumps(value, ensure_ascii=False))


def _json_escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    if _FIRST_BYTE <= code <= _LAST_BYTE:
        return f"\\x{code - 0xDC00:02x}"
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if code < 0x100:
        return short.get(found.group(), f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
