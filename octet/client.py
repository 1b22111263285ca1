"""A client of an Octet server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from octet.evaluation import Evaluation
from service.cli.client import Client as _HttpClient
from service.cli.live import fetch_proposal
from service.core.builds.build import BuildState
from service.core.errors import BuildFailed, OctetError, from_json
from service.core.models.alias import STABLE
from service.core.models.arrays import Array
from service.core.models.model import model_name_of


@dataclass(frozen=True)
class Build:
    """A build on a server.

    Attributes:
        id: the identifier of the build.
        model, version: the model that the build belongs to; None if it belongs to no model any more.
        target: the target.
        state: `queued`, `running`, `succeeded`, `different`, `failed` or `canceled`.
        artifact: the digest of the artifact; None if the build has none.
        error: why the build failed; None if it did not.
    """

    id: str
    model: str | None
    version: int | None
    target: str
    state: str
    artifact: str | None
    error: OctetError | None

    @property
    def is_served(self) -> bool:
        """True if the build succeeded, so that the server answers predictions with it."""
        return self.state == BuildState.SUCCEEDED


class Client:
    """A connection to a server. Use it in a `with` block, or call `close`.

    All methods raise the error that the server reports (`octet.errors`), and `ServerUnreachable` if none answers.
    """

    def __init__(self, server: str = "http://localhost:8080", *, key: str | None = None) -> None:
        """
        Args:
            server: the URL of the server.
            key: an API key, if the server requires one.
        """
        self._client = _HttpClient(server, key)
        self._names: dict[tuple[str, int | None], list[str]] = {}  # the names of the inputs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._client.__exit__(None, None, None)

    def push(
        self,
        source: str | PathLike[str],
        name: str | None = None,
        *,
        target: str = "host",
        numerics: str | None = None,
        wait: bool = True,
    ) -> Build:
        """Uploads a model file as a new version of a model, and requests a build.

        Args:
            source: the file, as in `octet.compile`; or what `octet.quantize` returned.
            name: the name of the model; by default that of the file.
            target: a target of the server; `host` is the best one that the server serves.
            numerics: the numerics mode; by default that of the framework that wrote the file.
            wait: true to return when the build has ended.

        Raises:
            OctetError: the server refuses the file; or the build failed, with the error of the build.
        """
        from service.compiler.importers.uploads import upload_of

        path = Path(source)
        name = name or model_name_of(path)
        with upload_of(path) as upload:
            document = self._client.push(upload, name, target, numerics, lambda sent: None)
        if wait:
            self.wait(document["id"])
        return _build(self._client.build(document["id"]) if wait else document, name)

    def wait(self, build: str) -> Build:
        """Waits until the build with this identifier has ended.

        Raises:
            OctetError: the build failed, with the error of the build.
        """
        for _ in self._client.events(build):
            pass
        ended = _build(self._client.build(build))
        if ended.error is not None and not BuildState(ended.state).has_artifact:
            raise ended.error
        return ended

    def builds(self, model: str | None = None, *, limit: int = 20) -> list[Build]:
        """Returns the newest builds, of one model or of all models, the newest first."""
        return [_build(document, model) for document in self._client.builds(model, limit)]

    def models(self) -> list[str]:
        """Returns the names of the models."""
        return [document["name"] for document in self._client.models()]

    def predict(self, model: str, *inputs: Array | bytes, version: int | None = None) -> Any:
        """Returns the output for the inputs, or a tuple of outputs if there are several.

        Args:
            inputs: arrays in the order of the model's inputs; or the bytes of a picture, which the server decodes.
            version: the version of the model; by default the one that the alias `stable` names, or the newest one
                that is ready.

        Raises:
            NotFound: the server has no such model.
            InvalidTensor: an input does not fit the model.
        """
        key = (model, version)
        if key not in self._names:
            self._names[key] = [each["name"] for each in self._client.metadata(model, version)["inputs"]]
        names = self._names[key]
        if len(names) != len(inputs):
            raise ValueError(f"{model} has {len(names)} inputs ({', '.join(names)}), not {len(inputs)}")
        _, outputs = self._client.infer(model, names, inputs, version)
        values = tuple(outputs.values())
        return values[0] if len(values) == 1 else values

    def attach_score(self, evaluation: Evaluation) -> None:
        """Attaches the score that `octet.evaluate` measured to the artifact of the server with the same digest. It
        replaces an earlier score.

        Raises:
            NotFound: the server has no such artifact.
            Forbidden: the server trusts the scores of some keys only, and none of them is `OCTET_SIGNING_KEY`.
        """
        self._client.put_score(evaluation.artifact, evaluation.document)

    def promote(
        self,
        model: str,
        version: int,
        *,
        alias: str = STABLE,
        percent: int = 100,
        least: Mapping[str, float] | None = None,
    ) -> None:
        """Makes an alias name a version, for all requests or for a share of them in percent.

        Args:
            alias: the alias; requests that name no version go to `stable`.
            least: the scores that the version needs, by name: `{"top1": 0.7}`. A name followed by `.low` is the lower
                end of the confidence interval. The settings of the server may require more.

        Raises:
            GateNotPassed: the artifact of the version has no such score.
        """
        self._client.promote(model, version, alias, percent, least)

    def live_ranges(self, model: str) -> dict[str, tuple[float, float]]:
        """Returns the ranges that live requests of a model's newest version need: the name of each tensor whose
        calibrated range they leave, with its lowest and highest value. `octet.quantize` takes them as `live`.

        Raises:
            InvalidInput: the server counted no values of the model, or they do not leave a range.
        """
        return dict(fetch_proposal(self._client, model).proposed)

    def rollback(self, model: str, *, alias: str = STABLE, away_from: int) -> None:
        """Makes an alias name the version that it named before version `away_from`."""
        self._client.rollback(model, alias, away_from)

    def delete(self, model: str, version: int | None = None, *, force: bool = False) -> None:
        """Deletes a model, or one of its versions. `force` also deletes what an alias names."""
        self._client.delete(model, version, force)

    def __repr__(self) -> str:
        return f"<octet.Client {self._client.server}>"


def _build(document: dict[str, Any], name: str | None = None) -> Build:
    """Returns the build in a document of the API. `name` is the model of interest, because models may share builds."""
    models = [each for each in document.get("models") or () if name in (None, each["name"])]
    error = document.get("error")
    if error is not None:
        found: OctetError | None = from_json(error)
    else:
        failed = document["state"] in (BuildState.FAILED, BuildState.CANCELED)
        found = BuildFailed(f"the build ended as {document['state']}") if failed else None
    return Build(
        document["id"],
        models[0]["name"] if models else None,
        int(models[0]["version"]) if models else None,
        document["target"],
        document["state"],
        document.get("artifact"),
        found,
    )
