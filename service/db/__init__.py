"""The database: stores of builds, models and more, over SQLite or PostgreSQL.

The stores return values of the domain, never rows or SQL types.
"""

from service.core.build import LeaseLost
from service.core.model import ModelVersion
from service.db.access import AuditTable, KeyTable, UsageTable
from service.db.aliases import AliasStore
from service.db.bell import Notifications, Watch
from service.db.builds import BuildStore
from service.db.claims import Claim
from service.db.crashes import CrashTable
from service.db.database import Database
from service.db.models import ModelStore
from service.db.statistics import StageDurations, Statistics
from service.db.verifications import VerificationClaim, VerificationStore
from service.db.workers import WorkerStore

__all__ = [
    "AliasStore",
    "AuditTable",
    "BuildStore",
    "Claim",
    "CrashTable",
    "Database",
    "KeyTable",
    "LeaseLost",
    "ModelStore",
    "ModelVersion",
    "Notifications",
    "StageDurations",
    "Statistics",
    "UsageTable",
    "VerificationClaim",
    "VerificationStore",
    "Watch",
    "WorkerStore",
]
