"""How the writers of a table keep from replacing each other's commits: the catalog option `commit.coordination`.

A disk creates a file exclusively for all programs. An object store does so for those that ask for it, with conditional
puts. Apache Paimon's JVM does not ask: it looks whether the snapshot is there and then copies its own to the name,
over one that was created in between. So on a store nothing is written before the user has said who writes:

| value | who writes | what Freshet does |
|---|---|---|
| `exclusive-put` | programs that create with conditional puts | looks for other commits, and for its own last |
| `single-writer` | one program at a time, as the user vouches | looks for nothing |
| `jdbc-lock` | programs that hold the lock of one JDBC catalog | holds the lock around each claim |

`jdbc-lock` is what a JDBC catalog does whose lock is on; no other has such a lock. Where a store needs nothing of this
(`io.registry.Store.needs_coordination`), the option may be given all the same, and does what it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.registry import needs_coordination
from freshet.storage.options.secrets import shown_text
from freshet.storage.options.values import parse_bool

COORDINATION: Final = "commit.coordination"
ADOPT: Final = "commit.adopt"
COORDINATION_OPTIONS: Final = (COORDINATION, ADOPT)
"""What catalogs take that commit with files of the store alone."""


class Coordination(StrEnum):
    """Values of `commit.coordination`."""

    EXCLUSIVE_PUT = "exclusive-put"
    SINGLE_WRITER = "single-writer"
    JDBC_LOCK = "jdbc-lock"


_CHOICES: Final = {
    Coordination.EXCLUSIVE_PUT: "all programs that write the table create snapshots with conditional puts, as Freshet "
    "does and Apache Paimon does not; before each commit Freshet looks whether its last one is still there",
    Coordination.SINGLE_WRITER: "one program at a time writes the table, for which you vouch; Freshet checks nothing",
    Coordination.JDBC_LOCK: "the table is in a JDBC catalog whose lock is on (metastore=jdbc, lock.enabled=true), "
    "which Apache Paimon holds too; that catalog needs no option",
}


class CommitRules(Frozen):
    """What was chosen for the commits to a table; `coordination` is None where nothing was."""

    coordination: Coordination | None = None
    adopts: bool = False
    """Commits of programs without conditional puts may be among the latest: nobody else writes from now on."""

    @property
    def looks_for_others(self) -> bool:
        """Whether commits look for those of other programs, and for their own last one."""
        return self.coordination is Coordination.EXCLUSIVE_PUT


def commit_rules(options: Mapping[str, str], *, has_lock: bool = False) -> CommitRules:
    """The rules that options of a catalog ask for; `has_lock` is given by a catalog that holds one around claims.

    Raises `InvalidRequestError` for a value that there is not, and for `jdbc-lock` where there is no lock.
    """
    text = options.get(COORDINATION)
    adopts = _adopts(options)
    if text is None:
        return CommitRules(Coordination.JDBC_LOCK if has_lock else None, adopts)
    try:
        coordination = Coordination(text.strip().lower())
    except ValueError as error:
        raise InvalidRequestError(
            f"option {COORDINATION}={shown_text(text)}: there is no such way; choose one of\n{choices_text()}",
            option=COORDINATION,
        ) from error
    if coordination is Coordination.JDBC_LOCK and not has_lock:
        raise InvalidRequestError(
            f"option {COORDINATION}={coordination}: this catalog has no lock; open the JDBC catalog of the table with "
            "its lock on (metastore=jdbc, lock.enabled=true), or choose another way:\n"
            f"{choices_text(Coordination.EXCLUSIVE_PUT, Coordination.SINGLE_WRITER)}",
            option=COORDINATION,
        )
    return CommitRules(coordination, adopts)


def _adopts(options: Mapping[str, str]) -> bool:
    text = options.get(ADOPT, "false")
    try:
        return parse_bool(text)
    except ValueError as error:
        raise InvalidRequestError(f"option {ADOPT}={shown_text(text)}: {error}", option=ADOPT) from error


def check_coordinated(rules: CommitRules, location: str) -> None:
    """Raises `InvalidRequestError` with the choices where a location needs one of them and there is none."""
    if rules.coordination is None and needs_coordination(location):
        raise InvalidRequestError(
            f"nothing was written to {shown_text(location)}: its store does not keep other programs from replacing a "
            f"commit. Say how the writers of the table keep out of each other's way, with the catalog option "
            f"{COORDINATION} (options= of Catalog, catalog: of a pipeline file, --catalog-option of a command):\n"
            f"{choices_text()}",
            table=location,
            option=COORDINATION,
        )


def choices_text(*chosen: Coordination) -> str:
    """A line for each of the values, or of those that are given."""
    return "\n".join(f"  {each}: {_CHOICES[each]}" for each in chosen or _CHOICES)
