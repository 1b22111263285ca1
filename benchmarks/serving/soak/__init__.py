"""The soak: every kind of request for as long as wanted, each answer held to what it has to be.

`predicting`, `lifecycle` and `hostile` define the clients; `actors` runs them side by side and counts; `watching`
looks at what the server's processes take meanwhile; `run` is the whole.
"""

from benchmarks.serving.soak.run import measure

__all__ = ["measure"]
