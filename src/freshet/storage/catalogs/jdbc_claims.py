"""The claims of a table in a JDBC catalog: under its lock where there is one, and its properties follow its schema."""

from __future__ import annotations

import logging
from typing import Final

from freshet.storage.catalogs.claims import ClaimAnswer, TableClaims
from freshet.storage.catalogs.coordination import CommitRules
from freshet.storage.catalogs.jdbc_rows import JdbcRows
from freshet.storage.catalogs.jdbc_sql import TABLE_PROPERTIES
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.exceptions import StorageError
from freshet.storage.model.schema import TableSchema
from freshet.storage.model.snapshot import Snapshot

_LOG: Final = logging.getLogger(__name__)


class JdbcClaims:
    """Other claims; the rows of the table's properties follow its schema."""

    def __init__(self, claims: TableClaims, rows: JdbcRows, name: TableName) -> None:
        self._claims = claims
        self._rows = rows
        self._name = name

    @property
    def rules(self) -> CommitRules:
        """As the claims have them."""
        return self._claims.rules

    @property
    def has_lock(self) -> bool:
        """As the claims have it."""
        return self._claims.has_lock

    def by(self, rules: CommitRules) -> JdbcClaims:
        """The same by other rules."""
        return JdbcClaims(self._claims.by(rules), self._rows, self._name)

    def on_branch(self, branch: str) -> TableClaims:
        """Of a branch there are no rows."""
        return self._claims.on_branch(branch)

    def check_writable(self) -> None:
        """As the claims do."""
        self._claims.check_writable()

    def claim_schema(self, schema: TableSchema) -> bool:
        """As the claims do; a schema whose properties do not fit into their rows is refused before.

        Rows that cannot be written afterwards are written with the next schema: only other tools read them.
        """
        self._rows.check_lengths(schema)
        is_ours = self._claims.claim_schema(schema)
        if is_ours:
            try:
                self._rows.replace_properties(self._name, schema)
            except StorageError as error:
                _LOG.warning(
                    "table %s was altered, and its rows of %s were not: %s", self._name, TABLE_PROPERTIES, error
                )
        return is_ours

    def claim_snapshot(self, snapshot: Snapshot) -> ClaimAnswer:
        """As the claims do."""
        return self._claims.claim_snapshot(snapshot)

    def ask_again(self, snapshot: Snapshot) -> ClaimAnswer:
        """As the claims do."""
        return self._claims.ask_again(snapshot)
