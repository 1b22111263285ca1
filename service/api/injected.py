"""The services as an argument of request handlers: FastAPI finds them in the application."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Request

from service.api.services import Services


async def _of(request: Request) -> Services:  # async, because FastAPI runs what is not in a thread
    return cast(Services, request.app.state.services)


ServicesOf = Annotated[Services, Depends(_of)]
