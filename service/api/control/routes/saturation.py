"""`/api/v1/models/{name}/saturation`: the values that requests cause in a model, beside the ranges that it stores."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.control import paths, wire
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.errors import Unsupported
from service.core.models.model import ModelVersion
from service.core.models.ranges import ABOVE, BELOW, CLIPPED_LIMIT, HEAD, LiveRange
from service.workers.counting import check_countable

router = APIRouter(prefix=f"{paths.PREFIX}/models", tags=["models"])


@router.get("/{name}/saturation", summary="Show which values a model clips", response_model=wire.Saturation)
def get_saturation(
    name: wire.PathName,
    services: ServicesOf,
    version: Annotated[int | None, Query(ge=1, le=10**9, description="The version; by default the newest.")] = None,
    days: Annotated[int, Query(ge=1, le=30, description="The number of days, including today (UTC).")] = 2,
) -> wire.Saturation:
    """Returns, for each tensor of the model, the range that calibration chose, and the values of the requests that were
    counted.
    """
    found = services.version(name, version)
    counted = services.live.recent(days, found.name, found.number)
    tensors = counted[0].tensors() if counted else []
    share = services.settings.saturation_share
    state, reason = wire.SaturationState.WITHIN, None
    if not counted:
        state, reason = _nothing_counted(services, found)
    elif any(each.is_outside for each in tensors):
        state = wire.SaturationState.OUTSIDE
    return wire.Saturation(
        name=found.name,
        version=found.number,
        share=share,
        state=state,
        reason=reason,
        limit=CLIPPED_LIMIT,
        days=days,
        samples=counted[0].samples if counted else 0,
        dropped=counted[0].dropped if counted else 0,
        tensors=[_tensor(each) for each in tensors],
    )


def _nothing_counted(services: Services, version: ModelVersion) -> tuple[wire.SaturationState, str]:
    """Returns the state of a version without counts, and the reason."""
    share = services.settings.saturation_share
    if not share:
        return wire.SaturationState.OFF, "OCTET_SATURATION_SHARE is 0"
    builds = services.builds.counting(version.name, version.number)
    if not builds:
        return _not_requested(services, version, share)
    if not builds[0].state.is_final:
        return wire.SaturationState.WAITING, f"build {builds[0].id}, which counts, has not ended"
    if builds[0].artifact is None:
        message = (builds[0].error or {}).get("message", builds[0].state)
        return wire.SaturationState.OFF, f"build {builds[0].id}, which counts, failed: {message}"
    return wire.SaturationState.WAITING, "no request was counted yet"


def _not_requested(services: Services, version: ModelVersion, share: float) -> tuple[wire.SaturationState, str]:
    listed = services.builds.requested_by({version.name})
    served = [each for each in listed if each.version == version.number and each.artifact is not None]
    reasons: list[str] = []
    for build in served:
        try:
            check_countable(services.layout, build)
        except Unsupported as error:
            reasons.append(str(error))
    if served and len(reasons) == len(served):
        return wire.SaturationState.OFF, reasons[0]
    return wire.SaturationState.WAITING, f"no request was sampled yet; 1 of {1 / share:,.0f} is"


def _tensor(live: LiveRange) -> wire.TensorCounts:
    stored, counts, proposed = live.stored, live.counts, live.proposed
    sides = {"low": stored.is_low_activation, "high": stored.is_high_activation}
    return wire.TensorCounts(
        tensor=stored.tensor,
        stored=wire.Range(low=stored.low_real, high=stored.high_real),
        live=wire.Range(low=live.low_real, high=live.high_real),
        values=live.values,
        below=counts[BELOW],
        above=counts[ABOVE],
        activation=[side for side, is_one in sides.items() if is_one],
        clipped=live.clipped_ratio,
        state=wire.SaturationState.OUTSIDE if live.is_outside else wire.SaturationState.WITHIN,
        proposed=None if proposed is None else wire.Range(low=proposed[0], high=proposed[1]),
        bin_width=stored.bin_codes * stored.scale,
        first_edge=stored.real(stored.bin_edge(0)),
        histogram=list(counts[HEAD:]),
    )
