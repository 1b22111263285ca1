"""Numbers for people: three digits, and the unit that fits."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`0.0000371` -> `37.1 µs`."""
    for unit, length in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= length:
            return f"{_three_digits(seconds / length)} {unit}"
    return f"{_three_digits(seconds * 1e6)} µs"


def count(number: float) -> str:
    """`4089184256` -> `4.09 G`."""
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{_three_digits(number / size)} {prefix}"
    return f"{number:.3g}"


def size(number_bytes: int) -> str:
    """`23026053` -> `23.0 MB`."""
    number, _, prefix = count(number_bytes).partition(" ")
    return f"{number} {prefix}B"


def _three_digits(number: float) -> str:
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f}"
