"""The plan database: keys, records, layers, validation, export and import."""

from __future__ import annotations

from akx.plandb.bundle import Bundle, ImportReport, parse_bundle, read_bundle
from akx.plandb.database import Lookup, PlanDatabase, database_of, default_database, shared_database
from akx.plandb.files import PlanDatabaseWarning, database_path
from akx.plandb.key import FIELD_MEANINGS, PlanKey, key_of_plan, made_with, make_key, revisions_of
from akx.plandb.layers import PlanLayer, ShippedPlans, shipped_plans
from akx.plandb.places import project_directory, project_plans, system_directories, system_plans
from akx.plandb.record import PlanRecord, TrialRecord, aged, mismatch, stale_fields
from akx.plandb.status import DatabaseStatus, LayerStatus, database_status
from akx.plandb.timing import SolverTiming, TimingKey

__all__ = [
    "FIELD_MEANINGS",
    "Bundle",
    "DatabaseStatus",
    "ImportReport",
    "LayerStatus",
    "Lookup",
    "PlanDatabase",
    "PlanDatabaseWarning",
    "PlanKey",
    "PlanLayer",
    "PlanRecord",
    "ShippedPlans",
    "SolverTiming",
    "TimingKey",
    "TrialRecord",
    "aged",
    "database_of",
    "database_path",
    "database_status",
    "default_database",
    "key_of_plan",
    "made_with",
    "make_key",
    "mismatch",
    "parse_bundle",
    "project_directory",
    "project_plans",
    "read_bundle",
    "revisions_of",
    "shared_database",
    "shipped_plans",
    "stale_fields",
    "system_directories",
    "system_plans",
]
