"""Access control: API keys and their limits, checked before any other part of a request is read.

Import the class `Guard`, which checks every request, from its module `guard`, because that module needs the web
framework.
"""

from service.api.access.access import ANYBODY, Access, check_exposure
from service.api.access.audit import AuditLog
from service.api.access.stores import Stores, stores_of

__all__ = ["ANYBODY", "Access", "AuditLog", "Stores", "check_exposure", "stores_of"]
