"""The plan database: keys, records, layers, validation, export and import.

database, reader, lookup   `PlanDatabase`: what changes it, what lists it, which plan a key has
key, record, trial, timing what is stored
file, store, server        the SQLite file: its faults, its connection; a PostgreSQL server instead
layout, tables             the SQL schema; its statements
place                      the path or URL of a database
layers, folder             read-only plans around it: of project, system and package; of one folder
bundle, merge              plans as JSON text; what becomes of two plans for one key
"""

from __future__ import annotations

from akx.plandb.bundle import Bundle, ImportReport, parse_bundle, read_bundle
from akx.plandb.database import PlanDatabase, database_of, default_database, shared_database
from akx.plandb.file import PlanDatabaseWarning
from akx.plandb.folder import ShippedPlans
from akx.plandb.key import FIELD_MEANINGS, PlanKey, key_of_plan, made_with, make_key, revisions_of
from akx.plandb.layers import (
    project_directory,
    project_plans,
    shipped_plans,
    system_directories,
    system_plans,
)
from akx.plandb.lookup import Lookup
from akx.plandb.place import database_path
from akx.plandb.record import PlanRecord, aged, mismatch, stale_fields
from akx.plandb.timing import SolverTiming, TimingKey
from akx.plandb.trial import TrialRecord

__all__ = [
    "FIELD_MEANINGS",
    "Bundle",
    "ImportReport",
    "Lookup",
    "PlanDatabase",
    "PlanDatabaseWarning",
    "PlanKey",
    "PlanRecord",
    "ShippedPlans",
    "SolverTiming",
    "TimingKey",
    "TrialRecord",
    "aged",
    "database_of",
    "database_path",
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
