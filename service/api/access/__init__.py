"""Access control: API keys and their limits, checked before any other part of a request is read.

Whoever serves imports `guard`, which stands before all that is asked, from where it is: it needs the web framework.
"""

from service.api.access.access import ANYBODY, Access, check_exposure
from service.api.access.audit import AuditLog
from service.api.access.keys import KeyFile, key_file

__all__ = ["ANYBODY", "Access", "AuditLog", "KeyFile", "check_exposure", "key_file"]
