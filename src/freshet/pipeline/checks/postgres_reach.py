"""Checks of the databases that pipelines read, before they start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freshet.pipeline.config.model import PipelineConfig, PostgresConfig
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.exceptions import KeyPath, PipelineFailedError, Problem
from freshet.pipeline.postgres.copied_table import CopiedTable
from freshet.pipeline.postgres.publications import published_tables
from freshet.pipeline.postgres.server import ServerPlace
from freshet.pipeline.postgres.source_check import server_problems, server_warnings
from freshet.pipeline.postgres.table_form import SourceCatalog, TableForm


def database_problems(configs: Sequence[PipelineConfig]) -> list[Problem]:
    """What the servers of these pipelines lack."""
    return [config.origin.placed(problem) for config in configs for problem in _problems(config)]


def database_warnings(config: PipelineConfig) -> list[str]:
    """What is to be known of them; nothing of one that cannot be asked."""
    try:
        return [text for _, source in sources_of(config) for text in server_warnings(source)]
    except PipelineFailedError:
        return []


def sources_of(config: PipelineConfig) -> list[tuple[KeyPath, PostgresConfig]]:
    """The databases of a file, with their keys."""
    return [
        (("sources", index, "postgres"), source.postgres)
        for index, source in enumerate(config.sources)
        if source.postgres is not None
    ]


def tables_read(source: PostgresConfig) -> list[TableForm]:
    """The tables that a source reads, as the catalogue has them now."""
    place = ServerPlace.of(source)
    catalog = SourceCatalog(place, source)
    with place.session() as session:
        named = [each for each in published_tables(session, source.publication) if source.takes(*each)]
        found = [CopiedTable.described(session, *each, source.publication) for each in named]
    return [catalog.form_of(each) for each in found if each is not None]


def _problems(config: PipelineConfig) -> Iterator[Problem]:
    for key_path, source in sources_of(config):
        index = int(key_path[1])

        def lake_key(schema: str, table: str, of: int = index) -> tuple[str, ...] | None:
            is_other = isinstance(config, SyncPipelineConfig) or bool(config.sources[of].select)
            return None if is_other else config.table.primary_key

        try:
            yield from (Problem(key_path, text) for text in server_problems(source, lake_key))
        except PipelineFailedError as error:
            yield Problem(key_path, str(error), error.kind)
