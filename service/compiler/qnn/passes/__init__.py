"""What is computed is less than what the model says: passes on the QNN graph, each a file, before kernels are selected.

None changes an output by a bit, in any mode: the oracle answers for the module as it was imported.
"""

from service.compiler.qnn.passes.simplify import Simplified, run_pass, simplify

__all__ = ["Simplified", "run_pass", "simplify"]
