"""All that a server is asked in its life, for as long as wanted, with each answer held to what it has to be.

`predicting`, `living` and `abusing` are who asks what; `acting` has them ask side by side and keeps count; `watching`
looks at what the server's processes take meanwhile; `run` is the whole.
"""

from benchmarks.serving.soak.run import measure

__all__ = ["measure"]
