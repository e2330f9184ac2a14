"""SQL statements as people give them: text, a catalog, maybe a Spark session. Spark is loaded where one is given."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from freshet.storage.catalog import Catalog
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.sql.run import DuckDbEngine, QueryEngine, SqlResult, SqlSession, run_one

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sql(
    text: str,
    catalog: Catalog | str | PathLike[str],
    *,
    spark: SparkSession | None = None,
    database: str | None = None,
) -> SqlResult:
    """Carries out one SQL statement, in Spark's dialect, on the tables of a catalog, or of a place as for `Catalog`.

        freshet.sql("UPDATE shop.orders SET total = total * 2 WHERE id = 7", catalog)
        freshet.sql("SELECT city, sum(total) FROM shop.orders VERSION AS OF 'eom' GROUP BY city", catalog).to_pandas()

    Statements other than queries are carried out by the methods of `Catalog` and `Table`. Queries are computed by
    DuckDB, or by the Spark session that is given; so are the rows of INSERT, of CREATE TABLE AS and
    of the source of MERGE, which Spark brings to this process. `database` is that of names without one.

    Raises `InvalidRequestError` naming the part of the text that cannot be carried out, before anything is written, and
    what the methods raise.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise InvalidRequestError(
            "a query is not computed by a session of Spark Connect: leave spark= out, and DuckDB computes it here, or "
            "read the tables with session.read.format('freshet') after freshet.register(session)"
        )
    opened = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
    engine: QueryEngine = DuckDbEngine()
    if spark is not None:
        from freshet.pipeline.sources.spark_queries import SparkQueryEngine

        engine = SparkQueryEngine(spark)
    return run_one(text, SqlSession(opened, engine, database))
