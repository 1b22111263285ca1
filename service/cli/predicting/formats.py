"""The formats of the inputs and the results of `octet predict`."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The formats of files with several inputs."""

    LINES = "lines"  # a text on each line
    CSV = "csv"  # with a header; a column `text`, or the numbers of one sample on each line
    JSONL = "jsonl"  # a string, a list of numbers, or an object on each line
    JSON = "json"  # a list of what a line of jsonl may contain, or one of these


class OutputFormat(StrEnum):
    """The formats of results."""

    TABLE = "table"
    JSONL = "jsonl"  # an object on each line
    CSV = "csv"
