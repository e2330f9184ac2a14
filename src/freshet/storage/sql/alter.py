"""ALTER TABLE, ALTER DATABASE, COMMENT ON: changes of columns, options and comments, all of a statement or none; RENAME
TO; DROP PARTITION.

sqlglot has trees for most of it; UNSET TBLPROPERTIES and the places of columns are read word by word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from freshet.storage.model.data_type import with_nullable
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetNullable,
    SetOption,
)
from freshet.storage.sql.alter_field import inside, without_path
from freshet.storage.sql.column_types import field_of_definition, type_of
from freshet.storage.sql.literals import PartitionValues, partition_values, properties, text_literal
from freshet.storage.sql.names import SqlName, column_name, table_name
from freshet.storage.sql.partitions import dropped_partitions
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.refused_statements import refuse_known_change
from freshet.storage.sql.result import SqlResult, said
from freshet.storage.sql.session import SqlSession
from freshet.storage.sql.sql_text import Statement
from freshet.storage.sql.words import Words

_COMMENT = "comment"


@dataclass(frozen=True)
class AlterTable:
    """Changes of one table; names of columns are as in the statement."""

    name: SqlName
    changes: tuple[SchemaChange, ...]
    if_exists: bool = False

    def run(self, session: SqlSession) -> SqlResult:
        """Makes all changes in one schema."""
        catalog, identifier = session.place(self.name)
        if self.if_exists and not catalog.has_table(identifier):
            return said(f"there is no table {identifier}")
        table = session.table(self.name)
        altered = table.alter(*as_written(self.changes, table.schema.column_names))
        return said(f"table {altered.name} has schema {altered.schema.id} now")


@dataclass(frozen=True)
class RenameTable:
    """ALTER TABLE … RENAME TO …; a new name without a database stays in that of the table."""

    name: SqlName
    new_name: SqlName
    if_exists: bool = False

    def run(self, session: SqlSession) -> SqlResult:
        """Renames it."""
        catalog, identifier = session.place(self.name)
        database = self.new_name.database or identifier.partition(".")[0]
        if self.new_name.catalog not in (None, self.name.catalog):
            raise wrong(str(self.new_name), "a table stays in its catalog")
        catalog.rename_table(identifier, f"{database}.{self.new_name.name}", if_exists=self.if_exists)
        return said(f"table {identifier} is {database}.{self.new_name.name} now")


@dataclass(frozen=True)
class DropPartitions:
    """ALTER TABLE … DROP PARTITION, and TRUNCATE TABLE … PARTITION."""

    name: SqlName
    partitions: tuple[PartitionValues, ...]

    def run(self, session: SqlSession) -> SqlResult:
        """Takes their rows away, in one snapshot."""
        return dropped_partitions(session.table(self.name), self.partitions)


@dataclass(frozen=True)
class AlterDatabase:
    """ALTER DATABASE … SET or UNSET DBPROPERTIES."""

    name: SqlName
    properties: Mapping[str, str | None]

    def run(self, session: SqlSession) -> SqlResult:
        """Sets them, where the catalog keeps them."""
        session.catalog_of(self.name).alter_database(self.name.name, self.properties)
        return said(f"database {self.name.name} has other properties now")


def as_written(changes: Sequence[SchemaChange], columns: Sequence[str]) -> list[SchemaChange]:
    """The changes with columns named as the table has them; case does not matter."""
    known = {name.lower(): name for name in columns}

    def found(name: str | None) -> str | None:
        return name if name is None or name in columns else known.get(name.lower(), name)

    written: list[SchemaChange] = []
    for change in changes:
        names: dict[str, Any] = {}
        if within := getattr(change, "within", ()):  # names of fields are those of the statement
            names["within"] = (found(within[0]), *within[1:])
            written.append(replace(change, **names))
            continue
        if hasattr(change, "name") and not isinstance(change, AddColumn):
            names["name"] = found(change.name)
        if isinstance(change, AddColumn | MoveColumn):
            names["after"] = found(change.after)
        written.append(replace(change, **names))
    return written


AlterPlan = AlterTable | RenameTable | DropPartitions


def plan_alter_database(words: Words) -> AlterDatabase:
    """The plan of ALTER DATABASE."""
    words.expect("ALTER")
    words.accept_one("DATABASE", "SCHEMA", "NAMESPACE")
    name = words.dotted().as_database()
    given: dict[str, str | None] = {}
    if words.accept("UNSET"):
        words.accept_one("DBPROPERTIES", "PROPERTIES")
        words.accept("IF", "EXISTS")
        given = dict.fromkeys(_keys(words))
    else:
        words.expect("SET")
        words.accept_one("DBPROPERTIES", "PROPERTIES")
        given.update(words.pairs())
    words.end()
    return AlterDatabase(name, given)


def plan_alter_table(statement: Statement) -> AlterPlan:
    """The plan of ALTER TABLE."""
    words = Words(statement)
    words.expect("ALTER", "TABLE")
    if_exists = words.accept("IF", "EXISTS")
    name = words.dotted()
    refuse_known_change(statement, words.rest)
    if words.accept("UNSET", "TBLPROPERTIES"):
        words.accept("IF", "EXISTS")
        keys = _keys(words)
        words.end()
        return AlterTable(name, tuple(_reset(key) for key in keys), if_exists)
    statement, path = without_path(statement, len(statement.tokens) - len(words.rest))
    if path:
        plan = plan_alter_table(statement)
        if not isinstance(plan, AlterTable):
            raise refused(statement.text)
        return replace(plan, changes=tuple(inside(plan.changes, path, statement.text)))
    place = _place(words)
    if place is None:
        return _of_tree(statement.tree(), ())
    move, before = place
    if before is None:
        return AlterTable(name, (move,), if_exists)
    kept = statement.tokens[: len(statement.tokens) - len(words.rest) + before]
    return _of_tree(statement.tree(kept), (move,))


def _place(words: Words) -> tuple[MoveColumn, int | None] | None:
    """Of `ALTER COLUMN name … FIRST | AFTER other` the move, and how many of its words another change is."""
    ahead = words.rest
    kind = ahead[0].text.upper() if ahead else ""
    if kind not in ("ALTER", "CHANGE") or len(ahead) < 3:
        return None
    is_first = ahead[-1].text.upper() == "FIRST"
    if not is_first and ahead[-2].text.upper() != "AFTER":
        return None
    count = len(ahead) - (1 if is_first else 2)
    start = 2 if ahead[1].text.upper() == "COLUMN" else 1
    name = ahead[start].text
    after = None if is_first else ahead[-1].text
    if count == start + 1:
        return MoveColumn(name, is_first, after), None
    renamed = kind == "CHANGE" and count > start + 1
    return MoveColumn(ahead[start + 1].text if renamed else name, is_first, after), count


def _of_tree(tree: exp.Expr, more: Sequence[SchemaChange]) -> AlterPlan:
    if not isinstance(tree, exp.Alter) or tree.args.get("kind") != "TABLE":
        raise refused(tree)
    only(tree, "this", "kind", "exists", "actions")
    name, actions = table_name(tree.this), tree.args["actions"]
    if_exists = bool(tree.args.get("exists"))
    if len(actions) == 1 and isinstance(actions[0], exp.AlterRename):
        return RenameTable(name, table_name(actions[0].this), if_exists)
    if all(isinstance(action, exp.DropPartition) for action in actions):
        partitions = [_whole_partition(each) for action in actions for each in action.expressions]
        return DropPartitions(name, tuple(partitions))
    changes = [change for action in actions for change in _changes(action)]
    return AlterTable(name, (*changes, *more), if_exists)


def _changes(action: exp.Expr) -> list[SchemaChange]:
    match action:
        case exp.Schema():
            return [_added(each) for each in action.expressions]
        case exp.ColumnDef():
            return [_added(action)]
        case exp.RenameColumn():
            only(action, "this", "to")
            return [RenameColumn(column_name(action.this), column_name(action.args["to"]))]
        case exp.Drop() if action.args.get("kind") in ("COLUMN", "COLUMNS"):
            only(action, "tables", "kind")
            return [DropColumn(name) for each in action.args["tables"] for name in _names(each)]
        case exp.AlterColumn():
            return _altered(action)
        case exp.AlterSet():
            only(action, "expressions")
            return [_set(key, value) for key, value in _given(action).items()]
    raise refused(action)


def _added(node: exp.Expr) -> AddColumn:
    made = field_of_definition(node)
    if node.args.get("exists"):
        raise refused(node, "IF NOT EXISTS of a column")
    place = node.args.get("position")
    if place is None:
        return AddColumn(made.name, made.type, made.description)
    is_first = place.args.get("position") == "FIRST"
    after = None if is_first else column_name(place.this)
    return AddColumn(made.name, made.type, made.description, is_first, after)


def _altered(action: exp.AlterColumn) -> list[SchemaChange]:
    only(action, "this", "dtype", "comment", "drop", "allow_null", "rename_to")
    name = column_name(action.this)
    changes: list[SchemaChange] = []
    new_name = action.args.get("rename_to")
    if new_name is not None and column_name(new_name) != name:
        changes.append(RenameColumn(name, column_name(new_name)))
        name = column_name(new_name)
    if action.args.get("dtype"):
        changes.append(ChangeType(name, with_nullable(type_of(action.args["dtype"]), True)))
    if action.args.get("comment"):
        changes.append(SetColumnComment(name, text_literal(action.args["comment"]) or None))
    if "allow_null" in action.args and action.args["allow_null"] is not None:
        changes.append(SetNullable(name, bool(action.args["allow_null"])))
    elif action.args.get("drop"):
        raise refused(action)
    if not changes:
        raise refused(action)
    return changes


def _given(action: exp.AlterSet) -> dict[str, str]:
    nodes = [each for node in action.expressions for each in (node.expressions or [node])]
    return properties(nodes)


def _set(key: str, value: str) -> SchemaChange:
    return SetComment(value or None) if key == _COMMENT else SetOption(key, value)


def _reset(key: str) -> SchemaChange:
    return SetComment(None) if key == _COMMENT else ResetOption(key)


def _names(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Schema):
        return [column_name(each) for each in node.expressions]
    return [column_name(node)]


def _whole_partition(node: exp.Expr) -> PartitionValues:
    values, open_keys = partition_values(node)
    if open_keys or not values:
        raise wrong(node, "give the key a value: PARTITION (dt = '2026-11-22')")
    return values


def _keys(words: Words) -> list[str]:
    words.expect("(")
    keys = [words.key()]
    while words.accept(","):
        keys.append(words.key())
    words.expect(")")
    return keys


def plan_comment(tree: exp.Comment) -> AlterTable:
    """The plan of COMMENT ON TABLE … IS …."""
    only(tree, "this", "kind", "expression")
    if tree.args.get("kind") != "TABLE":
        raise refused(tree)
    text = None if isinstance(tree.expression, exp.Null) else text_literal(tree.expression)
    return AlterTable(table_name(tree.this), (SetComment(text or None),))
