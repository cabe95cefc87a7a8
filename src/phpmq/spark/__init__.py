"""Captures as DataFrames of Spark: ``spark.read.format("phpmq")``, and functions for columns (extra ``spark``)."""

from phpmq.spark import _pyspark  # noqa: F401 (first of all)
from phpmq.spark.functions import from_phpmq, from_phpmq_stream, to_phpmq
from phpmq.spark.reader import SCHEMA
from phpmq.spark.session import local_session, register

__all__ = ["SCHEMA", "from_phpmq", "from_phpmq_stream", "local_session", "register", "to_phpmq"]
