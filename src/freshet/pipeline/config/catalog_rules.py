"""Options under `catalog:` whose wrong name or value is known without the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import SecretStr

from freshet.pipeline.config.catalogs import source_location, target_location
from freshet.pipeline.config.model import PipelineConfig, revealed
from freshet.pipeline.exceptions import KeyPath, Problem
from freshet.storage.catalog import WHY_NOT_SENT, holds_secret, is_catalog_option
from freshet.storage.exceptions import InvalidRequestError

_WAREHOUSE: Final = "warehouse"


def wrong_catalog_options(config: PipelineConfig) -> Iterator[Problem]:
    """Options that no catalog takes, and secrets that are written in full: Spark's tasks need the options."""
    yield from _wrong(config.catalog, ("catalog",))
    for index, source in enumerate(config.sources):
        if source.table is not None and source.table.catalog is not None:
            yield from _wrong(source.table.catalog, ("sources", index, "table", "catalog"))


def wrong_places(config: PipelineConfig) -> Iterator[Problem]:
    """Warehouses that a catalog could not be opened at: a name of a catalog and a folder, a database without a
    warehouse, a name whose options are wrong."""
    try:
        target_location(config)
    except InvalidRequestError as error:
        yield Problem(("table", "warehouse"), str(error))
        return
    for index, source in enumerate(config.sources):
        if source.table is not None:
            try:
                source_location(config, source.table)
            except InvalidRequestError as error:
                yield Problem(("sources", index, "table", "warehouse"), str(error))


def _wrong(options: Mapping[str, str | SecretStr], key_path: KeyPath) -> Iterator[Problem]:
    for key, text in revealed(options).items():
        if holds_secret(key, text):
            yield Problem((*key_path, key), WHY_NOT_SENT.format(key=key) + " (env:NAME, not ${NAME})")
        elif key != _WAREHOUSE and not is_catalog_option(key):
            yield Problem((*key_path, key), "is no option of a catalog or of a store; leave it out")
