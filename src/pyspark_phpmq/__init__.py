"""Spark finds the data source ``phpmq`` by this: it looks for ``DefaultSource`` in all modules called ``pyspark_…``."""

from phpmq.spark.source import PhpmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
