"""The TorchScript code in an archive. The code has Python's syntax, and is parsed but never executed."""

from __future__ import annotations

import ast
from typing import NoReturn

from service.compiler.importers.archive import Archive
from service.core.errors import MalformedModel

_LARGEST_BYTES = 1 << 20  # the size of one file
_DEEPEST = 200


class Code:
    """Classes and functions by their qualified names, such as `__torch__.torch.nn.modules.activation.ReLU`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._files: dict[str, dict[str, ast.ClassDef | ast.FunctionDef]] = {}
        self._methods: dict[str, dict[str, ast.FunctionDef]] = {}

    def function(self, name: str) -> ast.FunctionDef | None:
        found = self._found(name)
        return found if isinstance(found, ast.FunctionDef) else None

    def methods(self, name: str) -> dict[str, ast.FunctionDef] | None:
        """Returns the methods of a class; None if the class does not exist."""
        if name not in self._methods:
            found = self._found(name)
            if not isinstance(found, ast.ClassDef):
                return None
            self._methods[name] = {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}
        return self._methods[name]

    def _found(self, name: str) -> ast.ClassDef | ast.FunctionDef | None:
        module, _, member = name.rpartition(".")
        if module not in self._files:
            self._files[module] = self._parsed(f"code/{module.replace('.', '/')}.py")
        return self._files[module].get(member)

    def _parsed(self, record: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
        if record not in self._archive:
            return {}
        text = self._archive.text(record)
        if len(text) > _LARGEST_BYTES:
            _malformed(record, f"has {len(text)} characters; the limit is {_LARGEST_BYTES}")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
            raise MalformedModel(f"the code in {record[:200]!a} cannot be parsed: {type(exc).__name__}") from exc
        _check_depth(tree, record)
        return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _check_depth(tree: ast.AST, record: str) -> None:
    """Limits how deeply the code is nested, because the interpreter recurses to the same depth."""
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    _malformed(record, f"is nested more than {_DEEPEST} levels deep")


def _malformed(record: str, what: str) -> NoReturn:
    raise MalformedModel(f"the code in {record[:200]!a} {what}")
