"""The names of the files that a child writes into its directory. The child's parent or another child reads these
files.
"""

MODULE_FILE = "module.json"  # the imported module
GRAPH_FILE = "graph.txt"  # the imported module as text
COMPLETE_GRAPH_FILE = "graph.qnn"  # the same with constants, in the form that importers read
PLAIN_FILE = "plain.o"  # the object of the functions that TVM generates; see `lowering.codegen`
OBJECT_FILE = "kernel.o"  # the object of one kernel
CONSTANTS_FILE = "constants.bin"

EXPECTED_FILE = "expected.npz"  # the oracle's outputs for the generated inputs
PROBES_FILE = "probes.npz"  # the inputs that the oracle chose, and its outputs for them

OBSERVED_FILE = "seen.npy"  # what a role of `children.observing_roles` measured
OUTPUTS_FILE = "outputs-{}.bin"
CLASSES_FILE = "classes.npy"


def shorter_file(length: int) -> str:
    """Returns the name of the file with the outputs for inputs of `length` positions."""
    return f"shorter-{length}.npz"


def program_file(symbol: str) -> str:
    """Returns the name of the file of a kernel's program."""
    return f"{symbol}.json"


def reference_file(session: int) -> str:
    """Returns the name of the file that contains the outputs of one session of the reference runtime."""
    return f"reference-{session}.npz"


def reference_probes_file(session: int) -> str:
    """Returns the name of the file that contains that session's outputs for the inputs that the oracle chose."""
    return f"reference-{session}-probes.npz"
