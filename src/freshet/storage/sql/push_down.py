"""What a query needs of each of its tables: columns, and conditions that rows must meet.

A column is needed where its name occurs, or a star that has it. A condition is taken from the WHERE of a SELECT whose
FROM has the table: a part of its AND that names columns of this table only and that a scan can judge (`filter_text`).
Of a table that an outer join fills with NULLs only conditions are taken that no row of NULLs meets, so that rows which
they leave out would have been left out behind the join, too. Conditions of joins are taken where all are inner joins.

The whole query is computed over what is read, so what is missed here costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from freshet._frozen import Frozen
from freshet.storage.exceptions import StorageError
from freshet.storage.filters.filter_text import predicate_of
from freshet.storage.filters.predicate import Predicate


class Need(Frozen):
    """What a query needs of a table."""

    columns: tuple[str, ...]
    condition: exp.Expr | None = None
    predicate: Predicate | None = None


def needs(tree: exp.Query, schemas: Mapping[str, pa.Schema], *, in_utc: bool) -> dict[str, Need]:
    """The needs of tables by the names that they have in the tree, each once. Without `in_utc` no condition on a
    timestamp is taken: what is written without a zone may be of another one than scans take it for."""
    columns: dict[str, set[str]] = {label: set() for label in schemas}
    conditions: dict[str, list[exp.Expr]] = {label: [] for label in schemas}
    placed: set[str] = set()
    for scope in traverse_scope(tree):
        tables = _tables_of(scope, schemas)
        placed.update(tables.values())
        for label, names in _columns(scope, tables, schemas):
            columns[label].update(names)
        for label, condition in _conditions(scope, tables, schemas, in_utc=in_utc):
            conditions[label].append(condition)
    for label in schemas.keys() - placed:
        columns[label].update(schemas[label].names)
    return {label: _need(schema, columns[label], conditions[label]) for label, schema in schemas.items()}


def _need(schema: pa.Schema, columns: set[str], conditions: Sequence[exp.Expr]) -> Need:
    wanted = tuple(name for name in schema.names if name in columns) or tuple(schema.names[:1])
    if not conditions:
        return Need(wanted)
    condition = exp.and_(*conditions, copy=True)
    return Need(wanted, condition, predicate_of(condition).bind(schema))


def _tables_of(scope: Scope, schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """Labels of the tables in the FROM of a scope, by the names that they have there, in lower case."""
    tables = [node for node in _own_nodes(scope.expression) if isinstance(node, exp.Table) and node.name in schemas]
    return {table.alias_or_name.lower(): table.name for table in tables}


def _columns(
    scope: Scope, tables: Mapping[str, str], schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, set[str]]]:
    """The columns of each table that the expressions of a scope name, also those of queries outside of it."""
    levels = [tables]
    outer = scope.parent
    while outer is not None:
        levels.append(_tables_of(outer, schemas))
        outer = outer.parent
    for node in _own_nodes(scope.expression):
        match node:
            case exp.Pivot():
                yield from ((label, set(schemas[label].names)) for label in tables.values())
            case exp.Join():
                if node.args.get("method"):
                    yield from ((label, set(schemas[label].names)) for label in tables.values())
                for name in node.args.get("using") or ():
                    yield from ((label, _same(name.name, schemas[label])) for label in tables.values())
            case exp.Star() if not isinstance(node.parent, exp.Count):
                yield from _starred(node, levels, schemas)
            case exp.Column():
                yield from _named([part.name for part in node.parts], levels, schemas)


def _own_nodes(query: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of a query but for those of queries inside, which are scopes of their own."""
    return query.walk(prune=lambda node: node is not query and isinstance(node, exp.Select | exp.SetOperation))


def _starred(
    star: exp.Star, levels: Sequence[Mapping[str, str]], schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, set[str]]]:
    qualifier = star.parent.parts[0].name.lower() if isinstance(star.parent, exp.Column) else None
    for tables in levels if qualifier is not None else levels[:1]:
        for name, label in tables.items():
            if qualifier is None or qualifier == name:
                yield label, set(schemas[label].names)


def _named(
    parts: Sequence[str], levels: Sequence[Mapping[str, str]], schemas: Mapping[str, pa.Schema]
) -> Iterator[tuple[str, set[str]]]:
    """Tables with the columns that a name of these parts may mean: a column, one of a table, a field, a whole row. A
    name that the tables of a query have is not looked for outside of it."""
    for tables in levels:
        found = [(label, same) for label in tables.values() if (same := _same(parts[0], schemas[label]))]
        label = tables.get(parts[0].lower())
        if label is not None:
            found.append((label, _same(parts[1], schemas[label]) if len(parts) > 1 else set(schemas[label].names)))
        if found:
            yield from found
            return


def _same(name: str, schema: pa.Schema) -> set[str]:
    return {each for each in schema.names if each.lower() == name.lower()}


def _conditions(
    scope: Scope, tables: Mapping[str, str], schemas: Mapping[str, pa.Schema], *, in_utc: bool
) -> Iterator[tuple[str, exp.Expr]]:
    select = scope.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals"):
        return
    joins = select.args.get("joins") or []
    own = {id(join) for join in joins}
    if any(isinstance(node, exp.Join) and id(node) not in own for node in _own_nodes(select)):
        return  # joins within parentheses, whose NULLs are not looked for
    filled = _filled(select, joins)
    parts = _parts(select.args.get("where"))
    if not filled and not any(join.side or join.kind in ("SEMI", "ANTI") for join in joins):
        parts += [part for join in joins for part in _split(join.args.get("on"))]
    sources = [node for node, _ in scope.selected_sources.values()]
    is_all_tables = all(isinstance(node, exp.Table) and node.name in schemas for node in sources)
    for part in parts:
        label = _only_table(part, tables, schemas, is_all_tables=is_all_tables)
        if label is None or not _is_plain(select, label):
            continue
        condition = _bare(part)
        if not in_utc and _has_times(condition, schemas[label]):
            continue
        if _is_judged(condition, schemas[label], rejects_nulls=label in filled):
            yield label, condition


def _parts(where: exp.Expr | None) -> list[exp.Expr]:
    return [] if where is None else _split(where.this)


def _split(condition: exp.Expr | None) -> list[exp.Expr]:
    if condition is None:
        return []
    plain = condition.unnest()
    return [each for part in plain.flatten() for each in _split(part)] if isinstance(plain, exp.And) else [plain]


def _filled(select: exp.Select, joins: Sequence[exp.Join]) -> set[str]:
    """Labels of the tables whose columns an outer join may fill with NULLs."""
    from_ = select.args.get("from_")
    before = [table.name for table in from_.find_all(exp.Table)] if from_ is not None else []
    filled: set[str] = set()
    for join in joins:
        joined = [table.name for table in join.this.find_all(exp.Table)]
        if join.side in ("RIGHT", "FULL"):
            filled.update(before)
        if join.side in ("LEFT", "FULL"):
            filled.update(joined)
        before += joined
    return filled


def _only_table(
    part: exp.Expr, tables: Mapping[str, str], schemas: Mapping[str, pa.Schema], *, is_all_tables: bool
) -> str | None:
    """The one table whose columns a condition names, if all of them are surely of it."""
    if part.find(exp.Query) is not None:
        return None
    found: set[str | None] = set()
    for column in part.find_all(exp.Column):
        names = [each.name for each in column.parts]
        if len(names) == 2:
            found.add(tables.get(names[0].lower()))
        elif len(names) == 1 and is_all_tables:
            having = [label for label in tables.values() if _same(names[0], schemas[label])]
            found.add(having[0] if len(having) == 1 else None)
        else:
            found.add(None)
    return found.pop() if len(found) == 1 else None


def _is_plain(select: exp.Select, label: str) -> bool:
    """Whether the table is read as it is: a condition behind a sample or a pivot would mean other rows."""
    table = next((each for each in select.find_all(exp.Table) if each.name == label), None)
    return table is not None and not (table.args.get("sample") or table.args.get("pivots"))


def _bare(part: exp.Expr) -> exp.Expr:
    """The condition with its columns named without their table."""
    bare = part.copy()
    for column in list(bare.find_all(exp.Column)):
        column.set("table", None)
    return bare


def _has_times(condition: exp.Expr, schema: pa.Schema) -> bool:
    named = {each.lower() for column in condition.find_all(exp.Column) for each in [column.name]}
    return any(field.name.lower() in named and pa.types.is_timestamp(field.type) for field in schema)


def _is_judged(condition: exp.Expr, schema: pa.Schema, *, rejects_nulls: bool) -> bool:
    """Whether a scan can judge it and, if that is asked, whether a row of NULLs does not meet it."""
    try:
        predicate = predicate_of(condition).bind(schema)
        if not rejects_nulls:
            return True
        nulls = pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)
        return bool(nulls.filter(predicate.to_arrow()).num_rows == 0)
    except (StorageError, pa.ArrowException, RecursionError):
        return False
