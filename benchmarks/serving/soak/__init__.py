"""The soak: every type of request for a given time, with each response checked.

`predicting`, `lifecycle` and `hostile` define the clients; `actors` runs them concurrently and counts; `watching`
records the resources of the server's processes; `run` is the whole.
"""

from benchmarks.serving.soak.run import measure

__all__ = ["measure"]
