"""The soak: every type of request for a given time, with each response checked.

`predicting`, `lifecycle` and `hostile` define the clients. `actors` runs them concurrently and counts their results.
`watching` records the resources of the server's processes. `run` runs a whole soak.
"""

from benchmarks.serving.soak.run import measure

__all__ = ["measure"]
