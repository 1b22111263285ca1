"""Converts domain values to wire models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import Response

from service.api.access.tenants import short_name
from service.api.control import paths, wire
from service.core.access.key import Key
from service.core.builds.build import Build
from service.core.builds.quantization import is_quantization
from service.core.models.alias import Alias
from service.core.models.metadata import ModelMetadata
from service.core.models.model import ModelVersion
from service.db import BuildStore
from service.db.builds.store import Requests
from service.workers.inference.states import VersionStatus

RETRY_AFTER_S = 1  # builds take seconds


def version(of: ModelVersion, status: VersionStatus, facts: Mapping[str, Any] | None = None) -> wire.ModelVersion:
    known = of.metadata.over(ModelMetadata.from_file(facts or {}))
    return wire.ModelVersion(
        name=of.name,
        version=of.number,
        source=of.source,
        format=of.format,
        size_bytes=of.size_bytes,
        created_at=of.created_at,
        url=paths.version(of.name, of.number),
        state=status.state,
        reason=status.reason or None,
        build=None if status.build is None else status.build.id,
        artifact=None if status.build is None else status.build.artifact,
        facts=None if facts is None else wire.Facts(**facts),
        metadata=wire.Metadata(**known.to_json()) if known else None,
    )


def alias(of: Alias) -> wire.Alias:
    return wire.Alias(
        name=of.name,
        version=of.version,
        canary=None if of.canary is None else wire.Canary(version=of.canary, percent=of.canary_percent),
        previous=list(of.previous),
        changed_at=of.changed_at,
    )


def model(newest: ModelVersion, status: VersionStatus, aliases: Iterable[Alias]) -> wire.Model:
    return wire.Model(**version(newest, status).model_dump(), aliases=[alias(each) for each in aliases])


def builds(of: Sequence[Build], store: BuildStore) -> list[wire.Build]:
    """Returns builds, each with all models that requested it."""
    requesters = store.requests_of([each.id for each in of])
    return [_build(each, requesters[each.id]) for each in of]


def build(of: Build, store: BuildStore) -> wire.Build:
    return builds([of], store)[0]


def _build(of: Build, requesters: Requests) -> wire.Build:
    here, quantizes = paths.build(of.id), is_quantization(of.options)
    return wire.Build(
        id=of.id,
        key=of.key,
        model=of.model,
        version=of.version,
        models=[wire.AskedBy(name=name, version=number) for name, number, _ in requesters],
        source=of.source,
        target=of.target,
        numerics=of.numerics,
        options=dict(of.options),
        state=of.state,
        stage=of.stage,
        progress=of.progress,
        attempt=of.attempt,
        cancel_requested=of.cancel_requested,
        invalidated=of.invalidated,
        artifact=None if quantizes else of.artifact,
        error=wire.BuildError(**of.error) if of.error else None,
        created_at=of.created_at,
        started_at=of.started_at,
        finished_at=of.finished_at,
        links=wire.BuildLinks(
            self=here,
            events=f"{here}/events",
            log=f"{here}/log",
            model=paths.version(of.model, of.version),
            artifact=paths.artifact(of.artifact) if of.artifact and not quantizes else None,
            quantization=paths.quantization(of.model, of.id) if quantizes else None,
        ),
    )


def answer_with_build(response: Response, of: Build, store: BuildStore) -> wire.Build:
    """Prepares the response with a requested build: status 200 if it has ended, otherwise 202. `Location` is its
    URL.
    """
    response.status_code = 200 if of.state.is_final else 202
    response.headers["location"] = paths.build(of.id)
    if not of.state.is_final:
        response.headers["retry-after"] = str(RETRY_AFTER_S)
    return build(of, store)


def answer_with_builds(response: Response, model: str, of: Sequence[Build], store: BuildStore) -> wire.Builds:
    response.status_code = 200 if all(each.state.is_final for each in of) else 202
    response.headers["location"] = (
        paths.build(of[0].id) if len(of) == 1 else f"{paths.PREFIX}/builds?model={short_name(model)}"
    )
    return wire.Builds(builds=builds(of, store))


def etag(of: wire.Wire) -> str:
    return '"' + hashlib.sha256(of.model_dump_json().encode()).hexdigest()[:32] + '"'


def key(known: Key) -> wire.Key:
    return wire.Key(
        id=known.id,
        name=known.name,
        scopes=sorted(known.scopes),
        requests_per_s=known.limits.requests_per_s,
        requests_per_day=known.limits.requests_per_day,
        tenant=known.tenant,
        created_at=known.created_at,
        revoked_at=known.revoked_at,
    )
