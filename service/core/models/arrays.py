"""The type of NumPy arrays whose shape and element type are known at run time only."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
