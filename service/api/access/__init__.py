"""Who may do what: API keys and their limits, asked for before anything else of a request is looked at."""

from service.api.access.access import ANYBODY, Access, check_exposure
from service.api.access.audit import AuditLog
from service.api.access.guard import Guard
from service.api.access.keys import KeyFile, key_file

__all__ = ["ANYBODY", "Access", "AuditLog", "Guard", "KeyFile", "check_exposure", "key_file"]
