"""ALTER TABLE, ALTER DATABASE, COMMENT ON: changes of columns, options and comments, all of a statement or none; RENAME
TO; DROP PARTITION.

sqlglot has trees for most of it; UNSET TBLPROPERTIES and the places of columns are read word by word.

Fields inside of columns in ALTER TABLE: `ADD COLUMN address.zip STRING`, `RENAME COLUMN address.nr TO number`.

The statement is read without the names before the last dot, as if the field were a column; the changes are `within`
what these name then. `element` is that of an ARRAY, `value` that of a MAP, as Spark writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlglot import exp

from freshet._frozen import Frozen
from freshet.storage.model.data_type import with_nullable
from freshet.storage.schema.change import (
    AddColumn,
    ChangeType,
    DropColumn,
    DropPrimaryKey,
    MoveColumn,
    RenameColumn,
    ResetOption,
    SchemaChange,
    SetColumnComment,
    SetComment,
    SetDefault,
    SetNullable,
    SetOption,
)
from freshet.storage.sql.column_types import field_of_definition, type_of
from freshet.storage.sql.names import (
    PartitionValues,
    SqlName,
    by_keys,
    column_name,
    partition_values,
    plain_text,
    properties,
    table_name,
    text_literal,
)
from freshet.storage.sql.refusals import only, refused, wrong
from freshet.storage.sql.refused_statements import refuse_known_change
from freshet.storage.sql.result import SqlResult, edited, said
from freshet.storage.sql.session import Plan, SqlSession
from freshet.storage.sql.sql_text import Statement, Words

_VERBS: Final = ("ADD", "DROP", "RENAME", "ALTER", "CHANGE")


def without_path(statement: Statement, start: int) -> tuple[Statement, tuple[str, ...]]:
    """The statement with the last part of a dotted column name alone, and the parts before; `start` is the place of the
    verb among its tokens."""
    tokens = statement.tokens
    if start + 1 >= len(tokens) or tokens[start].text.upper() not in _VERBS:
        return statement, ()
    first = start + (2 if tokens[start + 1].text.upper() == "COLUMN" else 1)
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].text == ".":
        last += 2
    path = tuple(token.text for token in tokens[first:last:2])
    return replace(statement, tokens=(*tokens[:first], *tokens[last:])), path


def inside(changes: Sequence[SchemaChange], path: tuple[str, ...], text: str) -> list[SchemaChange]:
    """The changes of columns as changes of fields."""
    moved: list[SchemaChange] = []
    names: dict[str, Any] = {"within": path}
    for change in changes:
        if not hasattr(change, "within"):
            raise wrong(text, "a field of a column has no default, and its place is said when it is added, and stays")
        moved.append(replace(change, **names))
    return moved


_COMMENT = "comment"


class _Altered(Frozen):
    """Changes of one table; names of columns are as in the statement."""

    name: SqlName
    changes: tuple[SchemaChange, ...]
    if_exists: bool = False

    def make(self, session: SqlSession) -> SqlResult:
        """Makes all changes in one schema."""
        catalog, identifier = session.place(self.name)
        if self.if_exists and not catalog.has_table(identifier):
            return said(f"there is no table {identifier}")
        table = session.table(self.name)
        changes = as_written(self.changes, table.schema.column_names)
        altered = table.alter(*changes, allow_lossy=session.allow_lossy)
        return said(f"table {altered.name} has schema {altered.schema.id} now")


def _rename(name: SqlName, new_name: SqlName, if_exists: bool, session: SqlSession) -> SqlResult:
    """A new name without a database stays in that of the table."""
    catalog, identifier = session.place(name)
    database = new_name.database or identifier.partition(".")[0]
    if new_name.catalog not in (None, name.catalog):
        raise wrong(str(new_name), "a table stays in its catalog")
    catalog.rename_table(identifier, f"{database}.{new_name.name}", if_exists=if_exists)
    return said(f"table {identifier} is {database}.{new_name.name} now")


def _alter_database(name: SqlName, properties: Mapping[str, str | None], session: SqlSession) -> SqlResult:
    session.catalog_of(name).alter_database(name.name, properties)
    return said(f"database {name.name} has other properties now")


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


def plan_alter_database(words: Words) -> Plan:
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
    return Plan(partial(_alter_database, name, given))


def plan_alter_table(statement: Statement) -> Plan:
    """The plan of ALTER TABLE."""
    found = _read(statement)
    return Plan(found.make) if isinstance(found, _Altered) else found


def _read(statement: Statement) -> _Altered | Plan:
    """The changes of the schema that a statement makes, or the plan of what is none."""
    words = Words(statement)
    words.expect("ALTER", "TABLE")
    if_exists = words.accept("IF", "EXISTS")
    name = words.dotted()
    refuse_known_change(statement, words.rest)
    if words.accept("UNSET", "TBLPROPERTIES"):
        words.accept("IF", "EXISTS")
        keys = _keys(words)
        words.end()
        return _Altered(name, tuple(_reset(key) for key in keys), if_exists)
    if words.accept("DROP", "PRIMARY", "KEY"):
        words.end()
        return _Altered(name, (DropPrimaryKey(),), if_exists)
    statement, path = without_path(statement, len(statement.tokens) - len(words.rest))
    if path:
        found = _read(statement)
        if not isinstance(found, _Altered):
            raise refused(statement.text)
        return replace(found, changes=tuple(inside(found.changes, path, statement.text)))
    place = _place(words)
    if place is None:
        return _of_tree(statement.tree(), ())
    move, before = place
    if before is None:
        return _Altered(name, (move,), if_exists)
    kept = statement.tokens[: len(statement.tokens) - len(words.rest) + before]
    return _of_tree(statement.tree(kept), (move,))


def _place(words: Words) -> tuple[MoveColumn, int | None] | None:
    """The move of `ALTER COLUMN name … FIRST | AFTER other`, and how many of its words another change is."""
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


def _of_tree(tree: exp.Expr, more: Sequence[SchemaChange]) -> _Altered | Plan:
    if not isinstance(tree, exp.Alter) or tree.args.get("kind") != "TABLE":
        raise refused(tree)
    only(tree, "this", "kind", "exists", "actions")
    name, actions = table_name(tree.this), tree.args["actions"]
    if_exists = bool(tree.args.get("exists"))
    if len(actions) == 1 and isinstance(actions[0], exp.AlterRename):
        return Plan(partial(_rename, name, table_name(actions[0].this), if_exists))
    if all(isinstance(action, exp.DropPartition) for action in actions):
        partitions = [_whole_partition(each) for action in actions for each in action.expressions]
        return plan_drop_partitions(name, partitions)
    changes = [change for action in actions for change in _changes(action)]
    return _Altered(name, (*changes, *more), if_exists)


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
    only(action, "this", "dtype", "comment", "drop", "allow_null", "rename_to", "default")
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
    elif action.args.get("drop"):  # of the default
        changes.append(SetDefault(name, None))
    if action.args.get("default"):
        changes.append(SetDefault(name, plain_text(action.args["default"])))
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


def plan_drop_partitions(name: SqlName, partitions: Sequence[PartitionValues]) -> Plan:
    """The plan of ALTER TABLE … DROP PARTITION and TRUNCATE TABLE … PARTITION: the rows go in one snapshot."""
    return Plan(partial(_drop_partitions, name, partitions), has_dry_run=True)


def _drop_partitions(name: SqlName, partitions: Sequence[PartitionValues], session: SqlSession) -> SqlResult:
    table = session.table(name)
    named = [by_keys(table, each) for each in partitions]
    return edited(table, table.drop_partition(*named, dry_run=session.dry_run))


def plan_comment(tree: exp.Comment) -> Plan:
    """The plan of COMMENT ON TABLE … IS …."""
    only(tree, "this", "kind", "expression")
    if tree.args.get("kind") != "TABLE":
        raise refused(tree)
    text = None if isinstance(tree.expression, exp.Null) else text_literal(tree.expression)
    return Plan(_Altered(table_name(tree.this), (SetComment(text or None),)).make)
