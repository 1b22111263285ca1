"""The messages between the compiler's parent process and its sandboxed children, and the files that they exchange.

Both sides import these definitions, so one class both writes and reads each message. A hostile model file may have
taken over the child that read the file. Therefore, reading a message checks the type of every member.

- `message`: the base class, which converts messages to JSON and back.
- `role`: a role of a child, with the types of its request and of its result.
- `files`: the names of files.
- `building`: importing, inspecting and building a model.
- `published`: reading the folder of a published model.
- `checking`: expected outputs, verification and measurements.
- `running`: `octet run`, `octet bench` and `octet explain`.
- `observing`: measuring models for quantization.
"""
