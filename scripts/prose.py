"""Finds sentences and names that break docs/developers/style.md, in lines that differ from a base revision.

    python -m scripts.prose                  # lines that differ from origin/main; on it, those of the last commit
    python -m scripts.prose --base v0.1.0    # lines that differ from another revision
    python -m scripts.prose --all [PATH...]  # every line

It reads comments, docstrings and messages of errors in Python, comments in C, C++, CUDA and JavaScript, and paragraphs
of Markdown. A line that ends in `prose: ignore` is skipped. The exit status is 1 if something is found.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.revisions import ROOT, base_revision, git

_CODE = (".cc", ".h", ".c", ".cuh", ".js")
_GENERATED = re.compile(r"_pb2|/descriptors\.h$|^docs/reference/|^benchmarks/[A-Z]+\.md$|^deploy/.*/README\.md$")
_IGNORE = "prose: ignore"

# Names of rules, and patterns. Each pattern also matches some good sentences: reword those.
_SENTENCES = {
    "starts with a clause in place of a noun or a verb": r"^(?:What|Who|Whoever|Whether|Where|(?:By|Of) which|To whom)"
    r"\b(?![^.?]*\?)",
    "uses a clause in place of a noun": r"\b(?:of|by|for|from|with|to|than|as) (?:what|who) "
    r"(?:is|was|are|it|they|has|can)\b",
    "says 'where' for 'if'": r"\b[Ww]here (?:there (?:is|are|was)|none|nothing|nobody)\b",
    "says 'is no' for 'is not'": r"(?<!\b[Tt]here )\b(?:is|are|was) no (?!longer\b|more\b|different\b)[a-z]+",
    "lets data speak": r"\b(?:file|setting|table|report|manifest|header|option|attribute)s? "
    r"(?:says?|said|tells?|asks?|knows?)\b|\b(?:is|are|was|were) told\b",
    "calls a program somebody": r"\b(?:[Nn]obody|[Ss]omebody)\b",
    "says 'stands' or 'lies' for 'is'": r"\b(?:stands|lies) (?:in|at|there|here|beside|behind|below|above)\b",
    "is a chain of 'of'": r"\bof (?:\w+ ){1,3}of (?:\w+ ){1,3}of\b",
}
_PATTERNS = {rule: re.compile(pattern) for rule, pattern in _SENTENCES.items()}
_NAME = re.compile(r"_*(?:made|taken|moved|seen|held|joined|shown|told|said|kept|known|asked|heard|own|theirs)")


@dataclass(frozen=True)
class Finding:
    """A sentence or a name that breaks a rule. `line` is the first line of the text that contains it."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Text:
    """A comment, docstring, message or paragraph, and the lines that it occupies."""

    first: int
    last: int
    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=[], help="default: everything that git tracks")
    parser.add_argument("--base", help="the revision to compare with")
    parser.add_argument("--all", action="store_true", help="every line, whatever has changed")
    options = parser.parse_args(arguments)
    changed = None if options.all else changed_lines(git("diff", "--unified=0", options.base or base_revision()))
    findings = []
    for path in git("ls-files", *options.paths).splitlines():
        if _GENERATED.search(path) or (changed is not None and path not in changed):
            continue
        source = (ROOT / path).read_text(errors="replace") if (ROOT / path).is_file() else ""
        findings += check(path, source, None if changed is None else changed[path])
    for finding in findings:
        print(finding)
    if findings:
        print(f"\n{len(findings)} to reword: see docs/developers/style.md")
    return min(len(findings), 1)


def check(path: str, source: str, lines: set[int] | None = None) -> list[Finding]:
    """Returns the findings in a file.

    Args:
        path: the path of the file, whose suffix determines how the file is read.
        lines: only texts that occupy one of these lines are checked; None for all.
    """
    findings = []
    for text in texts_of(path, source):
        is_checked = lines is None or not lines.isdisjoint(range(text.first, text.last + 1))
        if not is_checked or _IGNORE in text.text:
            continue
        for rule, pattern in _PATTERNS.items():
            if match := pattern.search(text.text):
                findings.append(Finding(path, text.first, rule, _excerpt(text.text, match)))
    return findings + [each for each in _names(path, source) if lines is None or each.line in lines]


def texts_of(path: str, source: str) -> Iterator[Text]:
    """Yields the texts of a file in which people read sentences."""
    if path.endswith(".py"):
        yield from _docstrings_and_messages(source)
        yield from _blocks(_python_comments(source))
    elif path.endswith(_CODE):
        comment = re.compile(r"(?<![:\"'])//+\s*(.*)$|^\s*\*\s+(.*)")
        yield from _blocks(
            (number, match[1] or match[2] or "")
            for number, line in enumerate(source.splitlines(), 1)
            if (match := comment.search(line))
        )
    elif path.endswith(".md"):
        yield from _blocks(_markdown_lines(source))


def changed_lines(diff: str) -> dict[str, set[int]]:
    """Returns the numbers of the lines that a unified diff without context adds or changes, by path."""
    changed: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            changed.setdefault(path, set()).update(range(first, first + count))
    return changed


def _docstrings_and_messages(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield Text(node.body[0].lineno, node.body[0].end_lineno or 0, text)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Text(argument.lineno, argument.end_lineno or 0, argument.value)
                elif isinstance(argument, ast.JoinedStr):
                    parts = [str(each.value) if isinstance(each, ast.Constant) else "…" for each in argument.values]
                    yield Text(argument.lineno, argument.end_lineno or 0, "".join(parts))


def _python_comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(type: ignore|noqa|fmt:|isort)", token.string):
            yield token.start[0], token.string.lstrip("# ")


def _markdown_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of paragraphs, without code, tables and comments."""
    is_fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and line.strip() and not line.startswith(("    ", "|", "<!--")):
            yield number, line.strip("# -*")


def _blocks(lines: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Joins consecutive lines into one text."""
    block: list[str] = []
    last = 0
    for number, line in lines:
        if block and number != last + 1:
            yield Text(last - len(block) + 1, last, " ".join(block))
            block = []
        block.append(line)
        last = number
    if block:
        yield Text(last - len(block) + 1, last, " ".join(block))


def _names(path: str, source: str) -> Iterator[Finding]:
    """Yields functions whose name is a bare participle or a pronoun."""
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _NAME.fullmatch(node.name):
                yield Finding(path, node.lineno, "is a name without its object", node.name)


def _excerpt(text: str, match: re.Match[str]) -> str:
    start, end = max(0, match.start() - 30), match.end() + 50
    return " ".join(text[start:end].split())


if __name__ == "__main__":
    sys.exit(main())
