"""Every error a user can see, in one tree.

OctetError
├── InvalidInput            400  the request or file is not well formed
│   ├── DigestMismatch           bytes do not hash to the expected digest
│   ├── MalformedModel           a model file that is not well formed in its format
│   └── InvalidTensor            a predict request that does not fit the signature
├── Unauthorized            401
├── Forbidden               403
│   ├── CrossSite                a page of another site sent the request, and no API key is required
│   └── ForeignHost              the request names a host that is not this machine
├── NotFound                404
├── Conflict                409
│   ├── UnknownSequence          a model that keeps state has no such sequence
│   └── GateNotPassed            the score of a version is not good enough to promote the version, or is missing
├── TooLarge                413
├── UnsupportedFormat       415  a file, a picture or an encoding in a format that Octet does not read
├── Unsupported             422  understood, but Octet cannot do it
│   ├── UnknownTarget
│   ├── UnsafeLibrary            loading this compiled code could do harm
│   ├── NotQuantized             a float model of MXNet
│   ├── DynamicRange             a TFLite model of which only the weights are quantized
│   └── UnsupportedOperator
├── QueueFull               429
├── RateLimited             429  a limit of the API key, not of the server's capacity
│   └── QuotaExceeded
├── BuildFailed             500  recorded as the error of a build; never returned as HTTP 500
│   ├── BuildCrashed             a signal ended a process of the compiler
│   ├── InternalError            a defect of the compiler; the message gives the place, and the file may be valid
│   ├── BuildTimedOut
│   ├── OutOfMemory
│   └── VerificationFailed
├── CorruptBlob             500  bytes on disk no longer hash to their name
├── SandboxUnavailable      503
├── NotReady                503  no verified artifact of the model is loaded
│   ├── NotBuilt                 no build is under way: waiting does not help
│   │   ├── NotVerified              the artifact failed the verification by a worker
│   │   └── Different                the outputs differ from those of the reference runtime
│   ├── Quarantined              the artifact crashed the server
│   ├── Untrusted                the artifact was not signed by a key that this server trusts
│   ├── DatabaseLost             the database is being rebuilt from the index of the store
│   ├── DatabaseDamaged          octet doctor --repair rebuilds the database
│   ├── DatabaseUnreachable      PostgreSQL does not respond
│   ├── StoreUnreachable         the bucket does not respond
│   ├── RegistryFailed           an OCI registry does not respond, or responds against the protocol
│   ├── NotStarted               a process of the server ended while it started
│   ├── Restarting               the serving process is starting or stopping
│   └── MemoryFull               there is not enough memory for this request at the moment
├── DatabaseBusy            503
├── DataUnusable            503  the data directory cannot be read or written
├── DeadlinePassed          504
├── TenantFull              507
└── StorageFull             507

`api/problems.py` converts these errors to RFC 9457 problem documents, and defines the status codes shown above.
"""

from __future__ import annotations

from typing import Any

from service.core.octet_error import OctetError as OctetError

_WHERE = ("stage", "op", "tensor", "hint")


def from_json(members: dict[str, Any]) -> OctetError:
    """Parses the result of `OctetError.to_json`. An unknown code gives a `BuildFailed`."""
    known = {kind.code: kind for kind in _tree(OctetError)}
    kind = known.get(str(members.get("code")), BuildFailed)
    stage, op, tensor, hint = (str(members[name]) if members.get(name) else None for name in _WHERE)
    error = kind(str(members.get("message", "")) or None, stage=stage, op=op, tensor=tensor, hint=hint)
    if isinstance(error, InternalError) and isinstance(members.get("report"), dict):
        error.report = members["report"]
    return error


def _tree(kind: type[OctetError]) -> list[type[OctetError]]:
    return [kind] + [leaf for child in kind.__subclasses__() for leaf in _tree(child)]


class InvalidInput(OctetError):
    """The request is not well formed."""

    code = "invalid_input"


class DigestMismatch(InvalidInput):
    """The bytes do not hash to the expected digest."""

    code = "digest_mismatch"


class MalformedModel(InvalidInput):
    """The file is not a well-formed model of its format."""

    code = "malformed_model"


class InvalidTensor(InvalidInput):
    """A tensor does not fit the model's signature."""

    code = "invalid_tensor"


class Unauthorized(OctetError):
    """The request needs an API key."""

    code = "unauthorized"


class Forbidden(OctetError):
    """The request needs an API key with another scope."""

    code = "forbidden"


class CrossSite(Forbidden):
    """A page of another site sent the request, and this server requires no API key."""

    code = "cross_site"


class ForeignHost(Forbidden):
    """The request names a host that is not this machine, and this server requires no API key."""

    code = "foreign_host"


class NotFound(OctetError):
    """There is no such resource."""

    code = "not_found"


class Conflict(OctetError):
    """The request conflicts with the current state."""

    code = "conflict"


class UnknownSequence(Conflict):
    """The sequence is not under way."""

    code = "unknown_sequence"


class GateNotPassed(Conflict):
    """The version does not have the scores that are required to promote it."""

    code = "gate_not_passed"


class TooLarge(OctetError):
    """The body is larger than the limit."""

    code = "too_large"


class UnsupportedFormat(OctetError):
    """The data is in a format that is not supported here."""

    code = "unsupported_format"


class Unsupported(OctetError):
    """The request was understood, but cannot be carried out."""

    code = "unsupported"


class UnknownTarget(Unsupported):
    """There is no such target."""

    code = "unknown_target"


class UnsafeLibrary(Unsupported):
    """The artifact's library is not one that this compiler writes. It was not loaded."""

    code = "unsafe_library"


class NotQuantized(Unsupported):
    """The model is not quantized, and Octet compiles only quantized models of its format."""

    code = "not_quantized"


class DynamicRange(Unsupported):
    """Only the model's weights are quantized; LiteRT quantizes its activations at run time."""

    code = "dynamic_range"


class UnsupportedOperator(Unsupported):
    """The model uses an operator that Octet does not compile."""

    code = "unsupported_operator"


class QueueFull(OctetError):
    """The model's queue is full."""

    code = "queue_full"


class RateLimited(OctetError):
    """The API key's rate limit is exceeded."""

    code = "rate_limited"


class QuotaExceeded(RateLimited):
    """The API key's daily quota is used up."""

    code = "quota_exceeded"


class BuildFailed(OctetError):
    """The build failed."""

    code = "build_failed"


class BuildCrashed(BuildFailed):
    """The compiler process crashed."""

    code = "build_crashed"


class InternalError(BuildFailed):
    """The compiler has a defect."""

    code = "internal_error"

    def __init__(self, message: str | None = None, *, report: dict[str, Any] | None = None, **where: Any) -> None:
        """
        Args:
            report: the report that `compiler.children.incident` wrote, for users to attach to an issue.
            where: `stage`, `op`, `tensor`, `hint` and `retry_after_s`, as for every error.
        """
        super().__init__(message, **where)
        self.report = report or {}

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | ({"report": self.report} if self.report else {})


class BuildTimedOut(BuildFailed):
    """The build ran out of time."""

    code = "build_timed_out"


class OutOfMemory(BuildFailed):
    """The build ran out of memory."""

    code = "out_of_memory"


class VerificationFailed(BuildFailed):
    """The compiled model does not compute what its reference computes."""

    code = "verification_failed"


class CorruptBlob(OctetError):
    """Stored bytes no longer hash to their digest; they were quarantined."""

    code = "corrupt_blob"


class SandboxUnavailable(OctetError):
    """This kernel cannot sandbox the process that reads or runs a model."""

    code = "sandbox_unavailable"


class NotReady(OctetError):
    """No verified artifact of the model is loaded here."""

    code = "not_ready"


class NotBuilt(NotReady):
    """No build that could serve the model has succeeded, and none is under way."""

    code = "not_built"


class NotVerified(NotBuilt):
    """The model was built, but its artifact computes wrong results on machines of its target."""

    code = "not_verified"


class Different(NotBuilt):
    """The outputs of the build differ from those of its reference runtime by more than its numerics mode documents."""

    code = "different"


class Quarantined(NotReady):
    """The model's artifact crashed the server, and is quarantined."""

    code = "quarantined"


class Untrusted(NotReady):
    """The artifact was not signed by a trusted key, or was altered since. It was not loaded."""

    code = "untrusted"


class Restarting(NotReady):
    """The server is not ready to take requests."""

    code = "restarting"


class MemoryFull(NotReady):
    """There is not enough memory for this request at the moment."""

    code = "memory_full"


class DatabaseBusy(OctetError):
    """The database was locked for too long."""

    code = "database_busy"
    is_undone = False  # true if nothing was changed, and a retry may succeed at once


class DatabaseUnreachable(NotReady):
    """The database does not respond."""

    code = "database_unreachable"
    is_undone = True  # true if nothing was changed; false if unknown, because the connection broke during the commit


class DatabaseLost(NotReady):
    """The database file is gone, and is being rebuilt."""

    code = "database_lost"


class DatabaseDamaged(NotReady):
    """The database file is damaged, and has to be repaired."""

    code = "database_damaged"


class StoreUnreachable(NotReady):
    """The bucket of the store does not respond."""

    code = "store_unreachable"


class RegistryFailed(NotReady):
    """The OCI registry does not respond, or its response is not one of an OCI registry."""

    code = "registry_failed"


class NotStarted(NotReady):
    """A process of the server ended during its start."""

    code = "not_started"


class DeadlinePassed(OctetError):
    """The request's deadline passed before it was computed."""

    code = "deadline_passed"


class DataUnusable(OctetError):
    """The data directory cannot be read or written."""

    code = "data_unusable"


class TenantFull(OctetError):
    """The tenant's model files take up all the space that its quota allows."""

    code = "tenant_full"


class StorageFull(OctetError):
    """There is no space left in the data directory."""

    code = "storage_full"
