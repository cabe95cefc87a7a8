"""Captures on Spark: as DataFrames, streams and tables, and what became of their messages (extra ``spark``)."""

from phpmq.spark import _pyspark  # noqa: F401 (first of all)
from phpmq.spark.functions import from_phpmq, from_phpmq_stream, to_phpmq
from phpmq.spark.ingest import Tables, ingest, open_warehouse
from phpmq.spark.lifecycles import lifecycles
from phpmq.spark.reader import SCHEMA
from phpmq.spark.session import local_session, register
from phpmq.spark.summaries import damage_summary, queue_summary

__all__ = [
    "SCHEMA",
    "Tables",
    "damage_summary",
    "from_phpmq",
    "from_phpmq_stream",
    "ingest",
    "lifecycles",
    "local_session",
    "open_warehouse",
    "queue_summary",
    "register",
    "to_phpmq",
]
