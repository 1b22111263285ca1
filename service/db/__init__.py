"""The database: stores of builds, models and more, over SQLite or PostgreSQL.

The stores return values of the domain, never rows or SQL types.
"""

from service.core.builds.build import LeaseLost
from service.core.models.model import ModelVersion
from service.db.access import AuditTable, KeyTable, UsageTable
from service.db.aliases import AliasStore
from service.db.builds.claims import Claim
from service.db.builds.store import BuildStore
from service.db.crashes import CrashTable
from service.db.database import Database
from service.db.engines.notifications import Notifications, Watch
from service.db.live_counts import LiveCountStore
from service.db.models import ModelStore
from service.db.prediction_jobs import PredictionJobStore
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
    "LiveCountStore",
    "ModelStore",
    "ModelVersion",
    "Notifications",
    "PredictionJobStore",
    "StageDurations",
    "Statistics",
    "UsageTable",
    "VerificationClaim",
    "VerificationStore",
    "Watch",
    "WorkerStore",
]
