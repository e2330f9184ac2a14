"""The catalogs of a pipeline file: of the table that is written, and of tables that are read. Needs no Spark.

| table | options |
|---|---|
| the one that is written, its dead letters | `catalog` |
| a source with a `catalog` of its own | that alone |
| any other source | those of `catalog` that its catalog and its store take |

What no mapping gives is taken from the environment (`storage.catalogs.given`). A frame of Spark gets catalog options
with a prefix, as they may be called like its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import SecretStr

from freshet.pipeline.config.model import PipelineConfig, TableSourceConfig, revealed
from freshet.storage.catalog import (
    ADOPT,
    Catalog,
    is_catalog_option,
    options_for_others,
    place_options,
    taken_options,
    warehouse_location,
)
from freshet.storage.io.env import process_environment

CATALOG_PREFIX: Final = "catalog."


def target_catalog(config: PipelineConfig) -> Catalog:
    """The catalog of the table that is written."""
    return Catalog(config.table.warehouse, options=revealed(config.catalog))


def adopting(config: PipelineConfig) -> PipelineConfig:
    """The same pipeline, which takes over a table that programs without conditional puts have written."""
    return config.model_copy(update={"catalog": {**config.catalog, ADOPT: SecretStr("true")}})


def source_catalog(config: PipelineConfig, table: TableSourceConfig) -> Catalog:
    """The catalog of a table that is read."""
    return Catalog(table.warehouse, options=source_options(config, table))


def target_location(config: PipelineConfig) -> str:
    """Where the warehouse of the table that is written is; raises as `Catalog` does."""
    return warehouse_location(config.table.warehouse, revealed(config.catalog))


def source_location(config: PipelineConfig, table: TableSourceConfig) -> str:
    """Where the warehouse of a table that is read is; raises as `Catalog` does."""
    return warehouse_location(table.warehouse, source_options(config, table))


def source_options(config: PipelineConfig, table: TableSourceConfig) -> dict[str, str]:
    """The options of the catalog of a table that is read."""
    if table.catalog is not None:
        return revealed(table.catalog)
    return taken_options(warehouse_location(table.warehouse, revealed(config.catalog)), revealed(config.catalog))


def store_options(config: PipelineConfig, location: str) -> dict[str, str]:
    """The options by which a location beside the tables is reached: those of the catalog that its store takes."""
    return taken_options(location, place_options(config.table.warehouse, revealed(config.catalog)))


def spark_store_options(config: PipelineConfig, location: str) -> dict[str, str]:
    """The options by which Spark itself reaches the store of a location; secrets may be among them."""
    return options_for_others(location, store_options(config, location), process_environment())


def prefixed(options: Mapping[str, str]) -> dict[str, str]:
    """Catalog options as options of a frame."""
    return {f"{CATALOG_PREFIX}{key}": text for key, text in options.items()}


def catalog_options_of(options: Mapping[str, str], own: frozenset[str]) -> dict[str, str]:
    """The options of a frame that are the catalog's: with the prefix, or by a name that is none of the frame's
    `own`. The names are in small letters, as Spark hands them over."""
    plain = {key: text for key, text in options.items() if key not in own and is_catalog_option(key)}
    given = {key: text for key, text in options.items() if key.startswith(CATALOG_PREFIX)}
    return plain | {key.removeprefix(CATALOG_PREFIX): text for key, text in given.items()}
