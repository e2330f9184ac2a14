"""Draws verbs for a table, lets Freshet or Apache Paimon do each, and compares everything with the model after it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from freshet import AddColumn, Catalog, ChangeType, DropColumn, RenameColumn, Table, expr
from freshet.storage.exceptions import NotFoundError, StorageError
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.table_session import TableSession
from tests.contract.verbs.follower import Follower
from tests.contract.verbs.model import FIRST_COLUMNS, Column, K, Line, P, Row, State, texts
from tests.contract.verbs.shapes import KEPT, VerbTable
from tests.kit import paimon_changes
from tests.kit.paimon_judge import PaimonJudge
from tests.kit.paimon_table import PaimonTable
from tests.storage.system_tables.test_system_tables_judge import compare as compare_system_tables

PARTITIONS = ("2020-01-01", "2020-01-02", "9000-01-01")
EXPIRED = PARTITIONS[:2]
KEYS = 12
MAIN = "main"
EXPIRING = {
    "partition.expiration-time": "365 d",
    "partition.timestamp-formatter": "yyyy-MM-dd",
    "partition.expiration-check-interval": "0 s",
}
WEIGHTS = {
    "append": 3,
    "session": 4,
    "upsert": 3,
    "given": 2,
    "delete": 3,
    "update": 3,
    "merge": 2,
    "overwrite": 4,
    "truncate": 1,
    "drop_partition": 2,
    "rollback": 4,
    "undo": 2,
    "cut": 2,
    "tag": 4,
    "delete_tag": 2,
    "replace_tag": 2,
    "rename_tag": 1,
    "branch": 2,
    "drop_branch": 1,
    "fast_forward": 1,
    "alter": 3,
    "compact": 3,
    "expire": 2,
    "orphans": 2,
    "expire_partitions": 1,
}


class Sequence:
    """One table, its branches, and what was done to it."""

    def __init__(self, folder: Path, paimon: PaimonJudge, shape: VerbTable, seed: int) -> None:
        self.shape, self.seed = shape, seed
        self._chance = random.Random(f"{shape.name}/{seed}")
        self._catalog = Catalog(str(folder))
        self._paimon = paimon
        table = self._catalog.create_table(
            "db.t",
            schema={
                column.name: f"{column.kind} NOT NULL" if column.number in shape.keys else column.kind
                for column in FIRST_COLUMNS
            },
            primary_keys=shape.primary_keys,
            partition_keys=shape.partition_keys,
            options={**KEPT, **shape.options},
        )
        self._location = table.location
        self.lines = {MAIN: Line(MAIN, shape.keys)}
        self._sessions: dict[str, TableSession] = {}
        self._follower = Follower(shape, self._chance)
        self._next = 0
        self.log: list[str] = []
        self.refusals: list[str] = []

    # ---------------------------------------------------------------------------------------------- what there is

    def table(self, line: Line) -> Table:
        """The table or a branch of it, opened anew."""
        return self._catalog.table("db.t" if line.name == MAIN else f"db.t$branch_{line.name}")

    def judge(self, line: Line) -> PaimonTable:
        """The same for Paimon."""
        return self._paimon.table(self._location, branch=None if line.name == MAIN else line.name)

    @property
    def has_branches(self) -> bool:
        return len(self.lines) > 1

    def number(self) -> int:
        """One that was not used before."""
        self._next += 1
        return self._next

    # ---------------------------------------------------------------------------------------------- steps

    def run(self, count: int) -> None:
        """Does verbs, each followed by a comparison; at the end everything is compared."""
        try:
            for _ in range(count):
                self.step()
            self.check_end()
        except BaseException as error:
            error.add_note(f"table {self.shape.name}, seed {self.seed}:\n  " + "\n  ".join(self.log))
            raise
        finally:
            for session in self._sessions.values():
                session.abort()
                session.close()

    def step(self) -> None:
        """One verb that can be done now."""
        chance = self._chance
        done = False
        while not done:
            line = self.lines[MAIN if chance.random() < 0.7 else chance.choice(list(self.lines))]
            verb = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            is_ours = chance.random() < 0.55
            self.log.append(f"{'freshet' if is_ours else 'paimon'} {verb} on {line.name}:")
            before = self._ids(line)
            done = getattr(self, f"_{verb}")(line, is_ours) is not False
            if not done:
                self.log.pop()
                continue
            if line.name in self.lines:
                self._settle(line, before)
        self.check()

    def _settle(self, line: Line, before: list[int]) -> None:
        ids = self._ids(line)
        line.saw(ids)
        new = [each for each in self.table(line).snapshots() if each.id not in before]
        self.log[-1] += f" -> {[f'{each.id} {each.commit_kind.value}' for each in new]}"
        if line.name == MAIN:
            follows = self.shape.follows_overwrites
            self._follower.is_behind |= not follows and any(each.commit_kind is CommitKind.OVERWRITE for each in new)

    def _ids(self, line: Line) -> list[int]:
        return [snapshot.id for snapshot in self.table(line).snapshots()]

    def say(self, text: object) -> None:
        self.log[-1] += f" {text}"

    # ---------------------------------------------------------------------------------------------- comparison

    def check(self) -> None:
        """Both sides read what the model has; the stream beside is the table."""
        for line in self.lines.values():
            table, judge = self.table(line), self.judge(line)
            self._same(line.now, table.scan().to_arrow(), judge.read_arrow(), line.name)
            assert {tag.name: tag.snapshot_id for tag in table.tags.list()} == {
                name: snapshot_id for name, (snapshot_id, _) in line.tags.items()
            }
            for name, (_, state) in line.tags.items():
                # On a branch Paimon 2.0.0 looks for the tag among those of the table.
                theirs = judge.read_arrow(tag=name) if line.name == MAIN else None
                self._same(state, table.scan(tag=name).to_arrow(), theirs, f"{line.name} {name}")
            assert not table.check().damage
        main = self.lines[MAIN]
        assert self.table(main).branches.list() == sorted(set(self.lines) - {MAIN})
        if self._chance.random() < 0.6:
            self._follower.look(self.table(main), main)

    def check_end(self) -> None:
        """All snapshots too, the system tables, and the table after expiry and without orphans."""
        for line in self.lines.values():
            table, judge = self.table(line), self.judge(line)
            for snapshot_id, state in line.states.items():
                ours = table.scan(snapshot_id=snapshot_id).to_arrow()
                self._same(state, ours, judge.read_arrow(snapshot_id=snapshot_id), f"{line.name} {snapshot_id}")
            damage = table.check(all_snapshots=True).damage
            assert not damage, damage
        main = self.lines[MAIN]
        compare_system_tables(self.table(main), self._paimon)
        self._follower.look(self.table(main), main)
        for line in self.lines.values():
            self.table(line).expire_snapshots(retain_max=1, older_than_ms=0)
            line.saw(self._ids(line))
        self._follower.may_be_overtaken = True
        self.log.append("freshet expires everything and removes orphans")
        self.table(main).remove_orphan_files(older_than_ms=-60_000)
        self.check()

    @staticmethod
    def _same(state: State, ours: Any, theirs: Any, what: str) -> None:
        wanted = state.texts()
        for who, rows in (("freshet", ours), ("paimon", theirs)):
            if rows is None:
                continue
            assert rows.column_names == state.names, f"{who}: columns of {what}"
            found = texts(tuple(row.values()) for row in rows.to_pylist())
            assert found == wanted, f"{who} reads of {what}:\n{found}\nand it is\n{wanted}"

    # ---------------------------------------------------------------------------------------------- drawing

    def rows(self, line: Line, *, partition: str | None = None, unique: bool = True) -> list[Row]:
        """New rows, of each key one."""
        chance, found = self._chance, dict[tuple[Any, ...], Row]()
        for _ in range(chance.randint(1, 8)):
            row: dict[int, Any] = {P: partition or chance.choice(PARTITIONS), K: chance.randrange(KEYS)}
            for column in line.now.columns[2:]:
                row[column.number] = self.value(column)
            found[line.key(row) if line.keys and unique else (len(found),)] = row
        return list(found.values())

    def value(self, column: Column) -> Any:
        if self._chance.random() < 0.15:
            return None
        number = self.number()
        return f"v{number}" if column.kind == "STRING" else number % 7

    def filter(self, line: Line) -> tuple[str, Callable[[Row], bool]]:
        """A filter, and what it means; NULL is neither."""
        chance = self._chance
        key, partition = chance.randrange(KEYS), chance.choice(PARTITIONS)
        numbers = [column for column in line.now.columns[2:] if column.kind != "STRING"]
        drawn: list[tuple[str, Callable[[Row], bool]]] = [
            (f"k = {key}", lambda row: row[K] == key),
            (f"k < {key}", lambda row: row[K] < key),
            (f"p = '{partition}' AND k >= {key}", lambda row: row.get(P) == partition and row[K] >= key),
        ]
        if numbers:
            column, limit = chance.choice(numbers), chance.randrange(7)
            number = column.number
            drawn += [
                (f"{column.name} > {limit}", lambda row: row.get(number) is not None and row[number] > limit),
                (f"{column.name} IS NULL", lambda row: row.get(number) is None),
            ]
        return chance.choice(drawn)

    def named(self, line: Line, rows: list[Row], kind: str | None = None) -> list[dict[str, Any]]:
        """Rows as both sides take them."""
        return [{**line.now.named(row), **({} if kind is None else {"_ROW_KIND": kind})} for row in rows]

    def _of_paimon(self, line: Line, rows: list[dict[str, Any]], **given: Any) -> None:
        compact = self._chance.choice([None, None, "normal", "full"]) if self.shape.has_buckets else None
        self.judge(line).write(rows, compact=compact, ignore_empty=True, **given)

    # ---------------------------------------------------------------------------------------------- rows

    def _append(self, line: Line, is_ours: bool) -> None:
        rows = self.rows(line)
        if is_ours:
            self.table(line).append(self.named(line, rows))
        else:
            self._of_paimon(line, self.named(line, rows))
        line.now = line.added(rows)

    def _session(self, line: Line, is_ours: bool) -> bool | None:
        """The writer that goes on through everything; where it refuses, nothing of it is in the table."""
        if not is_ours:
            return False
        rows = self.rows(line)
        if line.name not in self._sessions:
            self._sessions[line.name] = self.table(line).writer("loader")
        session = self._sessions[line.name]
        try:
            for row in self.named(line, rows):
                session.write([row])
            session.commit()
        except StorageError as error:
            self.refusals.append(f"{type(error).__name__}: {error}")
            self.say(f"refused: {error!r}")
            session.abort()
            session.close()
            del self._sessions[line.name]
            return None
        line.now = line.added(rows)
        return None

    def _upsert(self, line: Line, is_ours: bool) -> bool | None:
        if not line.keys:
            return False
        rows = self.rows(line)
        if is_ours:
            self.table(line).upsert(self.named(line, rows))
        else:
            self._of_paimon(line, self.named(line, rows, "+U"))
        line.now = line.added(rows)
        return None

    def _given(self, line: Line, is_ours: bool) -> bool | None:
        """Some columns of rows, the others stay."""
        if not line.keys or not is_ours or self.shape.moves_rows:
            return False
        column = self._chance.choice(line.now.columns[2:])
        given = {*line.keys, column.number}
        rows: list[Row] = [{number: row[number] for number in given} for row in self.rows(line)]
        names = {each.name for each in line.now.columns if each.number in given}
        data = [{name: value for name, value in row.items() if name in names} for row in self.named(line, rows)]
        self.table(line).upsert(data, columns="given")
        held = {line.key(row): row for row in line.now.rows}
        line.now = line.added([{**held.get(line.key(row), {}), **row} for row in rows])
        return None

    def _delete(self, line: Line, is_ours: bool) -> bool | None:
        text, is_meant = self.filter(line)
        self.say(text)
        if is_ours:
            self.table(line).delete(text)
        elif line.keys:
            self._of_paimon(line, self.named(line, [row for row in line.now.rows if is_meant(row)], "-D"))
        else:
            return False
        line.now = line.without(is_meant)
        return None

    def _update(self, line: Line, is_ours: bool) -> bool | None:
        if not line.keys and not is_ours:
            return False
        text, is_meant = self.filter(line)
        column = self._chance.choice(line.now.columns[2:])
        value: Any = self.value(column)
        number, new = column.number, value
        change: Callable[[Row], Row] = lambda row: {**row, number: value}  # noqa: E731
        if column.kind != "STRING" and self._chance.random() < 0.5:
            new = expr(f"{column.name} + 1")
            change = lambda row: {**row, number: None if row.get(number) is None else row[number] + 1}  # noqa: E731
        self.say(f"{column.name} = {new!r} where {text}")
        if is_ours:
            self.table(line).update({column.name: new}, text)
        else:
            changed = [change(row) for row in line.now.rows if is_meant(row)]
            self._of_paimon(line, self.named(line, changed, "+U"))
        line.now = line.changed(is_meant, change)
        return None

    def _merge(self, line: Line, is_ours: bool) -> bool | None:
        if not line.keys or self.shape.moves_rows:
            return False
        rows = self.rows(line)
        given, held = {line.key(row): row for row in rows}, {line.key(row): row for row in line.now.rows}
        kind = self._chance.choice(["upsert", "delete", "sync"])
        self.say(kind)
        gone = set(given) & set(held) if kind == "delete" else set(held) - set(given) if kind == "sync" else set()
        added = [row for row in rows if kind != "delete" or line.key(row) not in held]
        if is_ours:
            on = [column.name for column in line.now.columns if column.number in line.keys]
            merge = self.table(line).merge(self.named(line, rows), on=on)
            merge = merge.when_matched_delete() if kind == "delete" else merge.when_matched_update_all()
            merge = merge.when_not_matched_insert_all()
            (merge.when_not_matched_by_source_delete() if kind == "sync" else merge).execute()
        else:
            deletes = self.named(line, [held[key] for key in sorted(gone)], "-D")
            self._of_paimon(line, [*self.named(line, added, "+U"), *deletes])
        line.now = line.added(added, [row for row in line.now.rows if line.key(row) not in gone])
        return None

    def _overwrite(self, line: Line, is_ours: bool) -> bool | None:
        chance = self._chance
        kind = chance.choice(["whole", "dynamic", "partition"])
        if not self.shape.partitioned or self.shape.moves_rows:
            kind = "whole"
        if self.shape.moves_rows and not is_ours:
            return False  # its assigner would look for the keys that are replaced
        partition = chance.choice(PARTITIONS) if kind == "partition" else None
        rows = self.rows(line, partition=partition)
        if kind == "partition" and chance.random() < 0.2:
            rows = []
        self.say(f"{kind} {partition or ''} with {len(rows)} rows")
        data = self.named(line, rows)
        if is_ours and data:
            spec = None if partition is None else {"p": partition}
            self.table(line).overwrite(data, partition=spec, dynamic={"whole": False, "dynamic": True}.get(kind))
        elif is_ours:
            self.table(line).drop_partition({"p": partition or ""})
        else:
            options = {"dynamic-partition-overwrite": kind == "dynamic"}
            self.judge(line).write(data, overwrite={} if partition is None else {"p": partition}, options=options)
        replaced = {row[P] for row in rows} if kind == "dynamic" else {partition}
        kept = [] if kind == "whole" else [row for row in line.now.rows if row[P] not in replaced]
        line.now = line.added(rows, kept)
        return None

    def _truncate(self, line: Line, is_ours: bool) -> None:
        if is_ours:
            self.table(line).truncate()
        else:
            self.judge(line).truncate()
        line.now = line.with_rows(())

    def _drop_partition(self, line: Line, is_ours: bool) -> bool | None:
        if not self.shape.partitioned:
            return False
        gone = self._chance.sample(PARTITIONS, self._chance.randint(1, 2))
        self.say(gone)
        if is_ours:
            self.table(line).drop_partition(*({"p": each} for each in gone))
        else:
            self.judge(line).truncate(*({"p": each} for each in gone))
        line.now = line.without(lambda row: row[P] in gone)
        return None

    def _expire_partitions(self, line: Line, is_ours: bool) -> bool | None:
        if not self.shape.partitioned:
            return False
        if is_ours:
            self.table(line).expire_partitions(older_than=timedelta(days=365))
        else:
            self.judge(line).copy(EXPIRING).expire_partitions()
        line.now = line.without(lambda row: row[P] in EXPIRED)
        return None

    # ---------------------------------------------------------------------------------------------- history

    def _rollback(self, line: Line, is_ours: bool) -> bool | None:
        """The form that adds a snapshot, which is ours."""
        if not is_ours:
            return False
        chance = self._chance
        if line.tags and chance.random() < 0.4:
            name = chance.choice(list(line.tags))
            self.say(f"to tag {name}")
            self.table(line).rollback(name)
            rows = line.tags[name][1].rows
        elif chance.random() < 0.1:
            self.say("to 0")
            self.table(line).rollback(0)
            rows = ()
        elif line.states:
            target = chance.choice(list(line.states))
            self.say(f"to {target}")
            self.table(line).rollback(target)
            rows = line.states[target].rows
        else:
            return False
        line.now = line.with_rows(rows)
        return None

    def _undo(self, line: Line, is_ours: bool) -> bool | None:
        """Takes back the last commit of whoever made it."""
        snapshots = self.table(line).snapshots()
        if not is_ours or not snapshots:
            return False
        last = snapshots[-1]
        who = (last.commit_user, last.commit_identifier)
        first = last
        for snapshot in reversed(snapshots):
            if (snapshot.commit_user, snapshot.commit_identifier) != who:
                break
            first = snapshot
        others = [each for each in snapshots if each.commit_user == who[0] and each.id < first.id]
        if any(each.commit_identifier >= who[1] for each in others) or first.id - 1 not in line.states:
            return False
        self.say(who)
        try:
            self.table(line).rollback(undo=who)
        except NotFoundError as error:
            if "stays" not in str(error):
                raise
            return False  # Paimon has used the number again, in a branch that does not show it
        line.now = line.with_rows(line.states[first.id - 1].rows)
        return None

    def _cut(self, line: Line, is_ours: bool) -> bool | None:
        """The form that removes the snapshots after one. Paimon removes their files, also those that a branch needs."""
        if not line.states or (not is_ours and self.has_branches):
            return False
        chance = self._chance
        target: int | str = chance.choice(list(line.states))
        if line.tags and chance.random() < 0.4:
            target = chance.choice(list(line.tags))
        self.say(f"to {target}")
        session = self._sessions.pop(line.name, None)
        if session is not None:  # nobody may have the table open
            session.close()
        if is_ours:
            self.table(line).rollback(target, delete_newer=True, force=True)
        else:
            self.judge(line).rollback(target)
        snapshot_id, state = line.tags[target] if isinstance(target, str) else (target, line.states[target])
        newest = max(self._ids_of(line), default=0)
        line.cut(snapshot_id)
        line.states[snapshot_id] = state
        line.now = line.with_rows(state.rows)
        if line.name == MAIN and newest > snapshot_id:
            cut_to = self._follower.cut_to
            self._follower.cut_to = snapshot_id if cut_to is None else min(cut_to, snapshot_id)
        return None

    def _ids_of(self, line: Line) -> list[int]:
        return list(line.states)

    def _expire(self, line: Line, is_ours: bool) -> bool | None:
        if not is_ours and self.has_branches:
            return False  # it does not look at branches
        retain = self._chance.randint(1, 4)
        self.say(f"to {retain}")
        if is_ours:
            self.table(line).expire_snapshots(retain_max=retain, retain_min=1, older_than_ms=0)
        else:
            self.judge(line).expire(retain_max=retain, retain_min=1)
        if line.name == MAIN:
            self._follower.may_be_overtaken = True
            self._follower.cut_is_forgotten |= not is_ours and self._follower.cut_to is not None
        return None

    def _orphans(self, line: Line, is_ours: bool) -> None:
        """Nobody commits meanwhile."""
        if is_ours:
            self.table(line).remove_orphan_files(older_than_ms=-60_000)
        else:
            self.judge(line).remove_orphans(int(time.time() * 1000) + 60_000)

    def _compact(self, line: Line, is_ours: bool) -> bool | None:
        if not is_ours and not self.shape.has_buckets:
            return False  # its engines do it
        full = self._chance.random() < 0.5
        if is_ours:
            self.table(line).compact(full=full)
        else:
            self.judge(line).compact(full=full)
        return None

    # ---------------------------------------------------------------------------------------------- tags, branches

    def _tag(self, line: Line, is_ours: bool) -> bool | None:
        if not line.states or len(line.tags) > 3:
            return False
        name, snapshot_id = f"t{self.number()}", self._chance.choice(list(line.states))
        self.say(f"{name} of {snapshot_id}")
        (self.table(line).tags if is_ours else _Tags(self.judge(line))).create(name, snapshot_id)
        line.tags[name] = (snapshot_id, line.states[snapshot_id])
        return None

    def _delete_tag(self, line: Line, is_ours: bool) -> bool | None:
        if not line.tags or (not is_ours and self.has_branches):
            return False  # Paimon removes what only the tag named, without a look at branches
        name = self._chance.choice(list(line.tags))
        self.say(name)
        (self.table(line).tags if is_ours else _Tags(self.judge(line))).delete(name)
        del line.tags[name]
        return None

    def _replace_tag(self, line: Line, is_ours: bool) -> bool | None:
        if not line.tags or not line.states:
            return False
        name, snapshot_id = self._chance.choice(list(line.tags)), self._chance.choice(list(line.states))
        self.say(f"{name} by {snapshot_id}")
        (self.table(line).tags if is_ours else _Tags(self.judge(line))).replace(name, snapshot_id)
        line.tags[name] = (snapshot_id, line.states[snapshot_id])
        return None

    def _rename_tag(self, line: Line, is_ours: bool) -> bool | None:
        if not line.tags:
            return False
        name, new = self._chance.choice(list(line.tags)), f"t{self.number()}"
        self.say(f"{name} {new}")
        (self.table(line).tags if is_ours else _Tags(self.judge(line))).rename(name, new)
        line.tags[new] = line.tags.pop(name)
        return None

    def _branch(self, line: Line, is_ours: bool) -> bool | None:
        if len(self.lines) > 2 or line.name != MAIN:
            return False
        name = f"b{self.number()}"
        tag = self._chance.choice(list(line.tags)) if line.tags and self._chance.random() < 0.8 else None
        self.say(f"{name} from {tag}")
        if is_ours:
            self.table(line).branches.create(name, from_tag=tag)
        else:
            self.judge(line).create_branch(name, tag)
        made = Line(name, self.shape.keys, State(line.now.columns))
        if tag is not None:
            snapshot_id, state = line.tags[tag]
            made.now, made.states, made.tags = state, {snapshot_id: state}, {tag: (snapshot_id, state)}
        self.lines[name] = made
        return None

    def _drop_branch(self, line: Line, is_ours: bool) -> bool | None:
        if line.name == MAIN:
            return False
        session = self._sessions.pop(line.name, None)
        if session is not None:
            session.close()
        if is_ours:
            self.table(self.lines[MAIN]).branches.drop(line.name)
        else:
            self.judge(self.lines[MAIN]).delete_branch(line.name)
        del self.lines[line.name]
        return None

    def _fast_forward(self, line: Line, is_ours: bool) -> bool | None:
        """Puts a branch in the place of the table: Paimon's alone, with nobody who has the table open."""
        if is_ours or line.name == MAIN or not self._ids(line):
            return False
        main, earliest = self.lines[MAIN], self._ids(line)[0]
        session = self._sessions.pop(MAIN, None)
        if session is not None:
            session.close()
        begins_alike = self._same_snapshot(main, line, earliest)
        self.judge(main).fast_forward(line.name)
        hint = Path(self._location, "snapshot", "EARLIEST")
        if hint.is_file() and int(hint.read_text()) > self._ids(main)[-1]:
            hint.unlink()  # Paimon leaves that of the table; `check` calls it damage, and says to remove it
        main.states = {each: state for each, state in main.states.items() if each < earliest} | line.states
        main.tags = {name: tag for name, tag in main.tags.items() if tag[0] < earliest} | line.tags
        main.now = line.now
        main.saw(self._ids(main))
        cut_to = earliest if begins_alike else earliest - 1
        self._follower.cut_to = cut_to if self._follower.cut_to is None else min(self._follower.cut_to, cut_to)
        self._follower.is_behind = True
        return None

    def _same_snapshot(self, one: Line, other: Line, snapshot_id: int) -> bool:
        found = [
            {snapshot.id: snapshot for snapshot in self.table(line).snapshots()}.get(snapshot_id)
            for line in (one, other)
        ]
        return found[0] is not None and found[0].is_same(found[1])

    # ---------------------------------------------------------------------------------------------- schema

    def _alter(self, line: Line, is_ours: bool) -> bool | None:
        columns, chance = list(line.now.columns), self._chance
        kind = chance.choice(["add", "add", "drop", "rename", "widen"])
        others = columns[2:]
        place = chance.randrange(2, len(columns))
        column = columns[place]
        if kind == "add":
            number = self.number() + 100
            column = Column(number, f"c{number}", chance.choice(["STRING", "INT"]))
            ours: Any = AddColumn(column.name, column.kind)
            theirs = paimon_changes.add_column(column.name, column.kind)
            columns.append(column)
        elif kind == "drop" and len(others) > 1:
            ours, theirs = DropColumn(column.name), paimon_changes.drop_column(column.name)
            del columns[place]
        elif kind == "rename":
            new = f"r{self.number()}"
            ours, theirs = RenameColumn(column.name, new), paimon_changes.rename_column(column.name, new)
            columns[place] = Column(column.number, new, column.kind)
        elif kind == "widen" and column.kind == "INT":
            ours, theirs = ChangeType(column.name, "BIGINT"), paimon_changes.column_type(column.name, "BIGINT")
            columns[place] = Column(column.number, column.name, "BIGINT")
        else:
            return False
        self.say(f"{kind} {column.name}")
        if is_ours:
            self.table(line).alter(ours)
        else:
            self.judge(line).alter(theirs)
        line.now = State(tuple(columns), line.now.rows)
        return None


class _Tags:
    """Tags of Paimon, called as ours."""

    def __init__(self, judge: PaimonTable) -> None:
        self.create, self.delete = judge.create_tag, judge.delete_tag
        self.replace, self.rename = judge.replace_tag, judge.rename_tag
