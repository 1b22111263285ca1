"""Generates docs/reference from the code: `make docs`. With --check, only compares.

It loads both the compiler and the server, so TVM must load its compiler: `TVM_USE_RUNTIME_LIB=0`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer.main

import octet
from scripts import tflite_operators
from scripts.surface import name_in, surface
from service.api import documents, statuses
from service.api.app import control_plane
from service.cli.app import app as command_line
from service.compiler.qnn.numerics import get_mode
from service.compiler.references import REFERENCES
from service.core import errors
from service.core.builds.numerics import MODES
from service.core.settings import Settings
from service.core.target import TARGETS
from tests.support import http1_cases, http2_cases
from tests.support.http2_frames import Service

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "reference"


def main() -> int:
    check = "--check" in sys.argv
    stale = [path for path, text in _pages() if not path.exists() or path.read_text() != text]
    if not check:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        for path, text in _pages():
            path.write_text(text)
    for path in stale:
        print(f"docs/reference/{path.name} {'is out of date; make docs writes it' if check else 'written'}")
    return 1 if stale and check else 0


def _pages() -> Iterator[tuple[Path, str]]:
    for name, page in PAGES.items():
        yield DIRECTORY / f"{name}.md", "\n\n".join(page()) + "\n"
    yield DIRECTORY / "surface.txt", "".join(f"{line}\n" for line in surface())


def settings() -> Iterator[str]:
    yield "# Settings"
    yield (
        "A command's flag takes precedence over an environment variable, which takes precedence over the file "
        "(`$OCTET_CONFIG`, or `octet.toml` in the working directory, with these names as keys), which takes "
        "precedence over the default. Sizes are in bytes, and times in seconds."
    )
    rows = [
        (f"`{name}`", f"`OCTET_{name.upper()}`", f"`{_default(field)}`", field.description or "")
        for name, field in Settings.model_fields.items()
    ]
    yield _table(("name", "environment", "default", "meaning"), rows)


def _default(field: Any) -> str:
    return "~/.local/share/octet" if field.default_factory else str(field.default)


def targets() -> Iterator[str]:
    yield "# Targets"
    yield (
        "What a model can be compiled for. `host` is the first of these that the CPU of the server's machine runs; it "
        "is resolved at once, and no build or artifact has it for a name. `octet targets` says which of them a machine "
        "compiles for, runs and verifies, and what it lacks for the others."
    )
    rows = [(f"`{target.name}`", target.architecture, f"`{target.reason}`", target.needs) for target in TARGETS]
    yield _table(("target", "architecture", "set apart by", "the CPU, or the card, must report"), rows)


def numerics() -> Iterator[str]:
    yield "# Numerics modes"
    yield (
        "Whose arithmetic a build follows, and the formula of each operator. A mode means one runtime with one set of "
        "options: with others, the same runtime may give other values. Where a formula is not equal to its reference "
        "bit for bit, it says so. What a build was checked against is in [its report](../how-to/reports.md). Why there "
        "are modes at all is in [ADR 0002](../adr/0002-numerics-modes.md)."
    )
    for name in MODES:
        mode = get_mode(name)
        yield f"## `{name}`"
        yield f"Reference: {mode.reference}."
        yield from _sessions(name)
        yield _table(("operator", "formula"), [(f"`{op}`", formula.summary) for op, formula in mode.formulas.items()])


def _sessions(mode: str) -> Iterator[str]:
    """Describes the sessions in which a build runs the runtimes that define a mode."""
    for reference in REFERENCES.values():
        if mode in reference.sessions:
            witness, *others = reference.sessions[mode]
            yield f"Witness: {reference.name} with {_options(witness.options)}."
            if others:
                listed = "; ".join(f"{each.note} ({_options(each.options) or 'no options'})" for each in others)
                yield f"Reports also contain how far these sessions differ from the build: {listed}."


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in options.items())


def error_codes() -> Iterator[str]:
    yield "# Errors"
    yield (
        "Every error is a problem document (RFC 9457, `application/problem+json`) with the members `type`, `title`, "
        "`status`, `detail`, `instance`, a stable `code`, a `request_id`, and, where they are known, the `stage` of "
        "the build, the operator (`op`), the `tensor`, and a `hint` what to do. `error` repeats `detail` for clients "
        "of the Open Inference Protocol. Why a build failed is data on the build, with the same codes, and never an "
        "HTTP error. The links lead to what to do, with an example."
    )
    rows = [
        (
            f"[`{kind.code}`](../errors.md#{kind.code})",
            str(statuses.STATUS[_mapped(kind)]),
            inspect.cleandoc(kind.__doc__ or "").split("\n")[0],
        )
        for kind in _kinds(errors.OctetError)
        if kind is not errors.OctetError and kind.__module__ == errors.__name__
    ]
    yield _table(("code", "status", "meaning"), rows)


def _kinds(kind: type[errors.OctetError]) -> Iterator[type[errors.OctetError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def _mapped(kind: type[errors.OctetError]) -> Any:
    return next(ancestor for ancestor in kind.__mro__ if ancestor in statuses.STATUS)


def http_api() -> Iterator[str]:
    document = control_plane().openapi()
    yield "# HTTP API"
    yield document["info"]["description"]
    yield (
        "This page is generated from the OpenAPI document, which a server serves at `/api/v1/openapi.json`. Any "
        "operation may also answer with an [error](errors.md)."
    )
    for tag in document["tags"]:
        yield f"## {tag['name'].capitalize()}"
        yield tag["description"]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", ()):
                    yield from _operation(method, path, operation)
    yield "## Schemas"
    for name, schema in document["components"]["schemas"].items():
        if "properties" in schema:
            yield from _schema(name, schema)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{method.upper()} {path}`"
    yield f"{operation['summary']}. {_flat(operation.get('description', ''))}".strip()
    if body := operation.get("requestBody"):
        kinds = (f"{_type(media.get('schema', {}))} (`{kind}`)" for kind, media in body["content"].items())
        yield "Body: " + ", or ".join(kinds)
    parameters = [
        (f"`{each['name']}`", each["in"], _type(each["schema"]), _flat(each.get("description", "")))
        for each in operation.get("parameters", ())
    ]
    if parameters:
        yield _table(("parameter", "in", "type", ""), parameters)
    answers = [
        (status, ", ".join(map(_media, answer.get("content", {}).items())), _flat(answer.get("description", "")))
        for status, answer in operation["responses"].items()
        if not answer.get("content", {}).keys() >= {documents.MEDIA_TYPE} or status == "default"
    ]
    yield _table(("status", "body", ""), answers)


def _schema(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if "description" in schema:
        yield _flat(schema["description"])
    rows = [(f"`{member}`", _type(of), _flat(of.get("description", ""))) for member, of in schema["properties"].items()]
    yield _table(("member", "type", ""), rows)


def _media(content: tuple[str, Mapping[str, Any]]) -> str:
    kind, media = content
    return _type(media["schema"]) if "$ref" in media.get("schema", {}) else f"`{kind}`"


def _type(schema: Mapping[str, Any]) -> str:
    """Describes a JSON schema in a few words; a named schema as a link to its heading."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))


def _flat(text: str) -> str:
    return " ".join(text.split())


def protocols() -> Iterator[str]:
    yield "# HTTP, case by case"
    yield (
        "What the data plane answers to requests that the RFCs allow, forbid, or leave to a server. Each row is a test "
        "of the program that serves (`tests/conformance/test_http.py`), over HTTP/2 on both ports. Beside it, 20,000 "
        "connections each, generated and spoiled, are read as h11, h2 and hpack read them, every difference with a "
        "named reason (`tests/unit/native`); windows, limits and floods have tests of their own there."
    )
    yield "## HTTP/1.1"
    yield (
        "Sections are of RFC 9112, unless another is named. A status with *closed* ends the connection: what follows "
        "is not taken for a request."
    )
    rows = [(each.section, each.title, each.outcome) for each in http1_cases.cases("/", b"{}")]
    yield _table(("section", "the client sends", "answer"), rows)
    yield "## HTTP/2"
    yield (
        "Sections are of RFC 9113, unless another is named. GOAWAY ends the connection, RST_STREAM a stream; *taken* "
        "means that the connection goes on."
    )
    of_streams = http2_cases.cases(Service("/", b"", b""), b"")
    rows = [(each.section, each.title, each.outcome) for each in (*http2_cases.prefaces(), *of_streams)]
    yield _table(("section", "the client sends", "answer"), rows)


def commands() -> Iterator[str]:
    yield "# Commands"
    yield (
        "Every command accepts `--json`: then stdout contains only JSON, even for an error. Progress goes to "
        "stderr. Exit status: 0 success, 1 failure, 2 wrong usage, 3 built but "
        "[different](../how-to/reports.md#builds-that-are-different) from its reference runtime, 130 interrupted."
    )
    yield from _command(typer.main.get_command(command_line), ("octet",))


def _command(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(child, (*path, name))
    if hasattr(command, "commands") and not command.invoke_without_command:
        return
    arguments = [_metavar(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    usage = " ".join([*path, *arguments, "[OPTIONS]"])
    yield f"## `{usage}`"
    yield inspect.cleandoc(command.help)
    rows = [(f"`{_spelled(parameter)}`", parameter.help) for parameter in command.params if parameter.help]
    yield _table(("", ""), rows)


def _spelled(parameter: Any) -> str:
    return (
        _metavar(parameter)
        if parameter.param_type_name == "argument"
        else ", ".join((*parameter.opts, *parameter.secondary_opts))
    )


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required else f"[{name}]"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def python() -> Iterator[str]:
    yield "# Python API"
    yield inspect.cleandoc(octet.__doc__ or "")
    lines = surface()
    for name in octet.__all__:
        value = getattr(octet, name)
        if inspect.ismodule(value):
            yield f"## `octet.{name}`"
            yield inspect.cleandoc(value.__doc__ or "")
            yield ", ".join(f"`{each}`" for each in value.__all__)
        else:
            yield from _name(f"octet.{name}", value, lines)


def extension() -> Iterator[str]:
    yield "# octet.qnn"
    yield inspect.cleandoc(octet.qnn.__doc__ or "")
    lines = surface()
    for name in octet.qnn.__all__:
        value = getattr(octet.qnn, name)
        if inspect.ismodule(value):
            yield f"## `octet.qnn.{name}`"
            yield f"The module `{value.__name__}`: TVM's pattern language."
        else:
            yield from _name(f"octet.qnn.{name}", value, lines)


def _name(name: str, value: Any, lines: Sequence[str]) -> Iterator[str]:
    """Describes a class or a function, and the members of a class."""
    (head,) = (line for line in lines if name_in(line) == name)
    yield f"## `{name}`"
    yield from _documented(head, value)
    for line in lines:
        if line.startswith(f"{name}.") and inspect.isclass(value):
            member = name_in(line).removeprefix(f"{name}.")
            found = inspect.getattr_static(value, member, None)
            found = found.__func__ if isinstance(found, staticmethod) else found
            if isinstance(found, property) or inspect.isfunction(found):
                yield f"### `{name.rpartition('.')[2]}.{member}`"
                yield from _documented(line, found)


def _documented(line: str, value: Any) -> Iterator[str]:
    """Describes a name: its line of the surface, its docstring, and the arguments of a constructor."""
    if "(" in line or ": " in line:
        yield f"    {line.replace('(self, ', '(').replace('(self)', '()')}"
    yield _paragraphs(inspect.cleandoc(value.__doc__ or ""))
    if inspect.isclass(value) and "(" in line:
        yield _paragraphs(inspect.cleandoc(value.__init__.__doc__ or ""))


def _paragraphs(docstring: str) -> str:
    """Returns a docstring as Markdown: its sections become lists."""
    text = re.sub(r"^(Args|Attributes|Raises):\n", r"\1:\n\n", docstring, flags=re.MULTILINE)
    text = re.sub(r"\n {8}(?! )", " ", text)
    return re.sub(r"^ {4}(\w[\w, ]*): ", r"- `\1`: ", text, flags=re.MULTILINE)


def operators_of_tflite() -> Iterator[str]:
    for part in tflite_operators.page():
        yield part if isinstance(part, str) else _table(*part)


PAGES: Mapping[str, Callable[[], Iterator[str]]] = {
    "settings": settings,
    "targets": targets,
    "numerics": numerics,
    "errors": error_codes,
    "commands": commands,
    "protocols": protocols,
    "api": http_api,
    "python": python,
    "extension": extension,
    "tflite-operators": operators_of_tflite,
}

if __name__ == "__main__":
    sys.exit(main())
