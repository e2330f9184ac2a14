"""What a rule of `sync` says otherwise than the table that is there, which keeps what it was created with.

| the rule says | and the table has |
|---|---|
| `primary_key`, `partition_by`, an option that decides what rows mean | another: refused |
| any other option, the type of a column | another: it is said, and the table's counts |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from freshet.pipeline.config.model import ROW_KIND_OPTION, revealed
from freshet.pipeline.config.sync import SyncPipelineConfig
from freshet.pipeline.config.table_arguments import alter_statement, sql_command, type_in_sql
from freshet.pipeline.decode.described_table import union_type
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.table_setup import differing_options, unheeded_texts
from freshet.pipeline.sync.ledger import anew_text
from freshet.pipeline.sync.routes import Route
from freshet.pipeline.sync.table_changes import own_columns
from freshet.storage.model.data_type import with_nullable
from freshet.storage.model.display import sql_name
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.sql_type import parse_sql_type


def refuse_other_rule(config: SyncPipelineConfig, route: Route, schema: TableSchema) -> None:
    """Raises `InvalidRequestError` where the rule of a table is one of another table."""
    found = []
    for key, there, here in (
        ("primary key", schema.primary_keys, route.primary_key),
        ("partition key", schema.partition_keys, route.partition_by),
    ):
        if here and sorted(there) != sorted(here):
            found.append(f"its {key} is ({', '.join(there)}), not ({', '.join(here)})")
    declared = {key: text for key, text in route.options.items() if key != ROW_KIND_OPTION}  # of the records
    found += differing_options({key: schema.options[key] for key in declared if key in schema.options}, declared)
    if found:
        statement = f"DROP TABLE {sql_name(*route.target.split('.', 1))}"
        dropped = sql_command(config.warehouse, [statement], revealed(config.catalog))
        raise InvalidRequestError(
            f"table {route.target} exists and differs from rule {route.rule_index} of sync.tables: {'; '.join(found)}. "
            "Nothing was written. Let the rule say what the table has, or send the rows to another table; or drop the "
            f"table ({dropped}) and {anew_text(config, route.target)}"
        )


def unheeded_by(config: SyncPipelineConfig, route: Route, schema: TableSchema) -> Iterator[str]:
    """What the rule of a table says without effect."""
    yield from unheeded_texts(config, route.target, schema.options, route.options)
    columns = {name: str(with_nullable(each.type, True)) for name, each in schema.by_name.items()}
    computed: dict[str, str] = {}
    with suppress(InvalidRequestError):  # said once there is a record
        own = own_columns(route, columns)
        computed = {name: text for name, text in own.items() if not union_type(columns.get(name, text), text)}
    for name, text in {**computed, **route.types}.items():
        wanted = with_nullable(parse_sql_type(text), True)
        if columns.get(name, str(wanted)) != str(wanted):
            statement = alter_statement(route.target, f"ALTER COLUMN {sql_name(name)} TYPE {type_in_sql(wanted)}")
            yield (
                f"{route.target} exists, and its own types count: column {name} is {columns[name]} there, so {wanted} "
                f"of rule {route.rule_index} of sync.tables does nothing. It is changed with: "
                f"{sql_command(config.warehouse, [statement], revealed(config.catalog))}"
            )
