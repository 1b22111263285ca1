"""The code that runs inside sandboxed child processes. `forked` and `locked` also start such processes.

A child runs one role. It imports the role's modules, gives up access to files, programs and the network, and only then
reads its request. The parent process does not trust anything that a child returns.

- `child`: the entry point of every child, and the table of roles.
- `zygote`: a process that has imported the compiler, and forks children on request.
- `forked`: children that are forks of the current process.
- `locked`: runs an artifact in a child that can only compute.
- `folder_roles`: read the folder of a published model.
- `roles`: import, inspect, build a model, compile a kernel, and compute the expected outputs with the oracle.
- `checking_roles`: verify and time an artifact, and run the source framework.
- `running_roles`: the roles for `octet run`, `octet bench` and `octet explain`.
- `observing_roles`: run a model on calibration inputs, for quantization.
- `columns`: the columns of an operand that a layer multiplies by its weights, and the moments of these columns.
- `probing`: chooses random inputs that reach rare cases of the model's operators.
- `handler`: converts the messages of a role from and to JSON.
- `incident`: describes an internal error without revealing the model's weights and names.
"""
