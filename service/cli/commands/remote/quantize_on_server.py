"""`octet quantize --on-server`: sends the float model and the inputs to a server, which quantizes."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.cli.client import Client
from service.cli.following import follow
from service.cli.output import Output
from service.cli.published import Description
from service.cli.pushing import push_model, upload_with_progress
from service.cli.reports import attached
from service.core.builds.quantization import QuantizationOptions
from service.core.errors import InvalidInput

_LABELS = "labels.csv"


def quantize_on_server(
    client: Client,
    model: Path,
    name: str,
    data: Path | None,
    labels: Path | None,
    options: QuantizationOptions,
    inputs: Mapping[str, str],
    target: Path,
    output: Output,
) -> dict[str, Any]:
    """Pushes the float model as `name`, has the server quantize it, writes the quantized file to `target`, and follows
    the build of the new version. Returns the report, and the `version` with its `build` and `reports`.

    Args:
        inputs: the shapes and values of inputs in the form of the API's queries `input_shape` and `fix`.

    Raises:
        OctetError: the server refused one of the files, or a build failed.
    """
    given = {parameter: text for parameter, text in inputs.items() if text}
    pushed = push_model(
        client, model, name, "host", None, output, given, detach=True, described=Description(options.metadata)
    )["build"]
    version = next(each["version"] for each in pushed["models"] if each["name"] == name)
    query = {"version": version, **_query(options), **given}
    if data is None:
        build = client.quantize(name, query, None, lambda sent: None)
    else:
        with _pack_inputs(data, labels, options.samples) as file:
            build = upload_with_progress(file, lambda on_sent: client.quantize(name, query, file, on_sent), output)
    if build["state"] != "succeeded":
        build = follow(client, build, output)
    result = client.quantization(name, build["id"])
    client.download_quantized(name, build["id"], target)
    own = [each for each in client.builds(name) if "quantize" not in each["options"] and _is_of(each, name, result)]
    built = follow(client, own[0], output) if own else None
    reports = attached(client, built["artifact"]) if built else {}
    return {"output": str(target), **result["report"], "version": result["version"], "build": built, "reports": reports}


def _query(options: QuantizationOptions) -> dict[str, Any]:
    """Returns the options as a query, without what the server already has: the metadata and the calibration set."""
    members = {name: value for name, value in options.to_json().items() if value is not None}
    del members["metadata"]
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in members.items()}


def _is_of(build: dict[str, Any], name: str, result: dict[str, Any]) -> bool:
    return any((each["name"], each["version"]) == (name, result["version"]) for each in build["models"])


@contextmanager
def _pack_inputs(data: Path, labels: Path | None, samples: int) -> Iterator[Path]:
    """Packs the inputs and their labels into one file.

    Raises:
        InvalidInput: the inputs are a single array, which cannot contain labels.
    """
    if data.is_file() and labels is None:
        yield data
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "inputs.zip"
        if data.is_dir():
            _pack(data, archive, samples)
        elif zipfile.is_zipfile(data):
            shutil.copyfile(data, archive)
        else:
            raise InvalidInput(
                f"{data} is not an archive, so labels cannot be added to it", hint="write the inputs as an .npz file"
            )
        if labels is not None:
            with zipfile.ZipFile(archive, "a") as file:
                file.write(labels, _LABELS)
        yield archive


def _pack(folder: Path, archive: Path, samples: int) -> None:
    """Packs the pictures that are used. Pictures after these, which the labels may name, are packed as empty files."""
    from service.quantize.calibration.data import Data

    with zipfile.ZipFile(archive, "w") as file:
        for index, name in enumerate(Data(folder).pictures()):
            if index < samples:
                file.write(folder / name, name)
            else:
                file.writestr(name, b"")
