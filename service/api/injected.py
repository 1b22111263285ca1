"""Passes the services to request handlers as an argument; FastAPI reads them from the application's state."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from service.api.control.predictions.jobs import Jobs
from service.api.control.predictions.predicting import Predictions
from service.api.services import Services


async def _of(request: Request) -> Services:  # async, because FastAPI runs a sync dependency in a thread
    return cast(Services, request.app.state.services)


async def _predictions_of(request: Request) -> Predictions:
    return cast(Predictions, request.app.state.predictions)


async def _jobs_of(request: Request) -> Jobs:
    return cast(Jobs, request.app.state.jobs)


ServicesOf = Annotated[Services, Depends(_of)]
JobsOf = Annotated[Jobs, Depends(_jobs_of)]
PredictionsOf = Annotated[Predictions, Depends(_predictions_of)]
