"""A catalog as Apache Paimon opens it, for tests that share one with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kit.paimon_changes import option_texts
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.kit.paimon_types import TypeJson, type_json

JDBC_JARS = ("paimon-jdbc",)
"""What a judge is started with for a catalog in a database."""


@dataclass(frozen=True)
class PaimonCatalog:
    """A catalog of these options. It looks at its database each time: its cache is off."""

    judge: PaimonJudge
    options: Mapping[str, str]

    def list_databases(self) -> list[str]:
        return sorted(self._call("list_databases"))

    def list_tables(self, database: str) -> list[str]:
        return sorted(self._call("list_tables", database=database))

    def database_properties(self, database: str) -> dict[str, str]:
        return dict(self._call("database_properties", database=database))

    def create_database(self, database: str, properties: Mapping[str, str] | None = None) -> None:
        self._call("create_database", database=database, properties=dict(properties or {}))

    def alter_database(self, database: str, changes: Mapping[str, str | None]) -> None:
        self._call("alter_database", database=database, properties=dict(changes))

    def drop_database(self, database: str, *, cascade: bool = False) -> None:
        self._call("drop_database", database=database, cascade=cascade)

    def create_table(
        self,
        name: str,
        columns: Mapping[str, TypeJson],
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> PaimonTable:
        self._call(
            "create_table",
            name=name,
            fields=[{"name": column, "type": type_json(of)} for column, of in columns.items()],
            primary_keys=list(primary_keys),
            partition_keys=list(partition_keys),
            options=option_texts(options or {}),
        )
        return self.table(name)

    def table(self, name: str) -> PaimonTable:
        location: str = self._call("location", name=name)
        return PaimonTable(self.judge, location, {}, catalog=self._options, name=name)

    def alter_table(self, name: str, *changes: Mapping[str, Any]) -> None:
        self._call("alter_table", name=name, changes=[dict(change) for change in changes])

    def rename_table(self, name: str, to: str) -> None:
        self._call("rename_table", name=name, to=to)

    def drop_table(self, name: str) -> None:
        self._call("drop_table", name=name)

    def repair_table(self, name: str) -> None:
        self._call("repair_table", name=name)

    @property
    def _options(self) -> dict[str, str]:
        return {"cache-enabled": "false", **self.options}

    def _call(self, call: str, **arguments: Any) -> Any:
        return self.judge.call("catalog", call=call, catalog=self._options, **arguments)
