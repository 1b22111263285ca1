"""Reads the graph of an IR (docs/articles_en/documentation/openvino-ir-format in openvinotoolkit/openvino)."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import NoReturn

from service.compiler.importers.names import printable
from service.compiler.importers.openvino.attributes import Attributes
from service.compiler.importers.openvino.file.xml import Element, parse
from service.compiler.importers.openvino.model import Entry, Layer, Model
from service.core.errors import MalformedModel, Unsupported

VERSIONS = (10, 11)
_MOST_LAYERS = 1 << 17
_MOST_PORTS = 1 << 12
_MOST_METADATA = 1 << 10
_LABEL_LENGTH = 120
_NUMBER = re.compile(r"\d{1,9}")


def read_model(data: bytes) -> Model:
    """Reads the graph in the bytes of an XML file.

    Raises:
        MalformedModel: the file is not well formed, or the layers form a cycle.
        Unsupported: the version is not 10 or 11.
    """
    root = parse(data)
    if root.name != "net":
        _malformed(f"has the root element {root.name[:40]!a}, not net")
    version = _number(root.attributes, "version", "the net")
    if version not in VERSIONS:
        raise Unsupported(
            f"the IR has version {version}; only 10 and 11 can be compiled",
            hint="convert the original model again with OpenVINO 2022 or newer",
        )
    elements = _children(root, "layers", "layer")
    if not 0 < len(elements) <= _MOST_LAYERS:
        _malformed(f"has {len(elements)} layers, not 1 to {_MOST_LAYERS}")
    outputs: dict[int, list[int]] = {}
    inputs: dict[int, list[int]] = {}
    for element in elements:
        number = _number(element.attributes, "id", "a layer")
        if number in outputs:
            _malformed(f"has two layers with the id {number}")
        outputs[number], inputs[number] = _ports(element, "output"), _ports(element, "input")
    sources = _sources(root, outputs, inputs)
    layers = {_number(each.attributes, "id", "a layer"): each for each in elements}
    read = {
        number: _layer(each, number, index, inputs[number], sources)
        for index, (number, each) in enumerate(layers.items())
    }
    return Model(printable(root.attributes.get("name", "")), version, _sorted(read), _metadata(root))


def _ports(element: Element, kind: str) -> list[int]:
    """Returns the ids of the ports, in order."""
    found = [_number(port.attributes, "id", "a port") for port in _children(element, kind, "port")]
    if len(found) > _MOST_PORTS or len(set(found)) != len(found):
        _malformed("has a layer with too many ports, or with two ports of one id")
    return found


def _sources(root: Element, outputs: Mapping[int, list[int]], inputs: Mapping[int, list[int]]) -> dict[Entry, Entry]:
    """Returns the output that each input port reads, by layer and port id."""
    sources: dict[Entry, Entry] = {}
    for edge in _children(root, "edges", "edge"):
        source, source_port, target, target_port = (
            _number(edge.attributes, name, "an edge") for name in ("from-layer", "from-port", "to-layer", "to-port")
        )
        if source_port not in outputs.get(source, ()) or target_port not in inputs.get(target, ()):
            _malformed(f"has an edge from port {source_port} of layer {source} to port {target_port} of layer {target}")
        if (target, target_port) in sources:
            _malformed(f"has two edges to port {target_port} of layer {target}")
        sources[target, target_port] = source, outputs[source].index(source_port)
    return sources


def _layer(element: Element, number: int, index: int, ports: list[int], sources: Mapping[Entry, Entry]) -> Layer:
    given = element.attributes
    name, kind = given.get("name", ""), given.get("type", "")
    label = f"{kind} {name}"
    label = printable(label[:_LABEL_LENGTH]) + ("…" if len(label) > _LABEL_LENGTH else "")
    for port in ports:
        if (number, port) not in sources:
            raise MalformedModel(f"{label} has the input port {port}, to which no edge leads", op=label)
    data = element.first("data")
    attributes = Attributes({} if data is None else data.attributes, label)
    names = tuple(_names(port.attributes.get("names", "")) for port in _children(element, "output", "port"))
    entries = tuple(sources[number, port] for port in ports)
    return Layer(number, index, name, kind, given.get("version", "opset1"), attributes, entries, names)


def _names(text: str) -> tuple[str, ...]:
    r"""Splits names at commas. A comma that belongs to a name is written as `\,`."""
    return tuple(part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text) if part)


def _sorted(layers: Mapping[int, Layer]) -> tuple[Layer, ...]:
    """Returns the layers in an order in which they can be computed; otherwise, in the order of the file."""
    waiting = {number: len({source for source, _ in layer.inputs}) for number, layer in layers.items()}
    readers: dict[int, list[int]] = {}
    for number, layer in layers.items():
        for source in {source for source, _ in layer.inputs}:
            readers.setdefault(source, []).append(number)
    ready = [number for number, count in waiting.items() if count == 0]
    ordered: list[Layer] = []
    for number in ready:
        ordered.append(layers[number])
        for reader in readers.get(number, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    if len(ordered) != len(layers):
        _malformed("has layers that form a cycle")
    return tuple(ordered)


def _metadata(root: Element) -> dict[str, str]:
    """Returns the texts in `rt_info`: `<rt_info><model_info><labels value="cat dog"/>` is `model_info.labels`."""
    found: dict[str, str] = {}
    waiting = deque(("", element) for element in root.all("rt_info"))
    while waiting and len(found) < _MOST_METADATA:
        prefix, element = waiting.popleft()
        for child in element.children:
            path = f"{prefix}{child.name}"
            if "value" in child.attributes:
                found.setdefault(path, child.attributes["value"])
            waiting.append((f"{path}.", child))
    return found


def _children(element: Element, group: str, name: str) -> list[Element]:
    container = element.first(group)
    return [] if container is None else list(container.all(name))


def _number(attributes: Mapping[str, str], name: str, what: str) -> int:
    value = attributes.get(name, "")
    if not _NUMBER.fullmatch(value):
        _malformed(f"has {what} with the {name} {value[:20]!a}, not a number")
    return int(value)


def _malformed(what: str) -> NoReturn:
    raise MalformedModel(f"the graph {what}")
