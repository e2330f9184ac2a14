"""Two processes write to one table as fast as they can: `python -m tests.soak.two_writers --seconds 6 --engine sum`.

Each case is a table of one merge engine, one changelog producer and a number of buckets. Two processes, each with a
`Table.writer` of its own, commit small batches to the same keys; with `--kills` they are killed and started again with
a replay of their last commit, and a third process compacts. Afterwards rows, changelog and levels must be what the
commits say in the order of their snapshots, at several snapshots, at the latest one, and after a full compaction.

A line for each case, and what is wrong with it; the exit code is 1 if anything is.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from freshet import Catalog
from freshet.storage.exceptions import StorageError
from tests.soak.busy_process import Journal, Task
from tests.soak.busy_processes import BusyProcesses
from tests.soak.writer_stories import ENGINES, PRODUCERS, STORIES, is_refused
from tests.soak.writer_verdict import Verdict

SAMPLES = 24
"""Snapshots of a run that are checked besides the latest."""

KEPT = {"snapshot.num-retained.min": "1000000", "snapshot.num-retained.max": "1000000"}
"""Every snapshot is compared with what it must hold."""


@dataclass(frozen=True)
class Case:
    """One table and who writes it."""

    engine: str
    producer: str
    buckets: int
    seed: int
    seconds: float
    writers: int = 2
    kills: bool = False
    compactor: bool = False
    rows: tuple[int | None, ...] = ()
    """Rows of the batches of each writer; a few where it is not given."""
    pauses_s: tuple[float, ...] = ()
    """How long each writer waits after a commit; not at all where it is not given."""
    takes_turns: bool = False
    """One after the other; then nothing can be wrong but the harness."""
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        with_what = " kills" * self.kills + " compactor" * self.compactor
        return f"{self.engine} {self.producer} {self.buckets} buckets{with_what} seed {self.seed}"

    def rows_of(self, writer: int) -> int | None:
        return self.rows[writer] if writer < len(self.rows) else None

    def pause_of(self, writer: int) -> float:
        return self.pauses_s[writer] if writer < len(self.pauses_s) else 0.0


@dataclass
class Outcome:
    """What became of a case."""

    case: Case
    faults: list[str]
    commits: list[int]
    """Of each writer, those that it made itself."""
    aborted: list[int]
    """Buckets whose compaction was aborted, of each writer."""
    rewrites: list[float] = field(default_factory=list)
    """Rows rewritten by a commit of each writer, on average; empty where the product does not say."""
    commit_ms: list[float] = field(default_factory=list)
    """Median and maximum of each writer."""
    kills: int = 0
    compared: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = [
            f"commits {_plus(self.commits)} (fairness {fairness(self):.2f})",
            f"aborted {_plus(self.aborted)}",
            f"ms {_plus(self.commit_ms)}",
        ]
        facts += [f"rewrites a commit {_plus(self.rewrites)}"] * bool(self.rewrites) + [f"kills {self.kills}"] * bool(
            self.kills
        )
        facts.append("compared " + ", ".join(f"{count} {what}" for what, count in self.compared.items()))
        lines = [f"{'WRONG' if self.faults else 'ok'}  {self.case}  ({'; '.join(facts)})"]
        return "\n".join([*lines, *(f"    {fault}" for fault in self.faults)])


def run_case(case: Case, processes: BusyProcesses, folder: Path) -> Outcome:
    """Makes the table, lets the processes write, and judges."""
    story = STORIES[case.engine]
    options = {"bucket": str(case.buckets), **KEPT, **story.options, **PRODUCERS[case.producer], **dict(case.options)}
    catalog = Catalog(str(folder / "warehouse"))
    table = catalog.create_table("soak.t", schema=story.schema, primary_keys=["k"], options=options)
    common = Task(str(folder / "warehouse"), "soak.t", case.engine, case.seed, case.seconds, "")
    tasks = [
        replace(
            common,
            journal=str(folder / f"writer-{writer}.journal"),
            writer=writer,
            rows=case.rows_of(writer),
            pause_s=case.pause_of(writer),
            names_commits=case.kills,
            takes_turns=case.takes_turns,
        )
        for writer in range(case.writers)
    ]
    compactors = [replace(common, journal=str(folder / "compactor.journal"))] * case.compactor
    kills = random.Random(f"{case.seed}/kills") if case.kills else None
    killed = processes.run([*tasks, *compactors], kills)
    journals = [Journal(Path(task.journal)) for task in tasks]
    rows_of = [case.rows_of(writer) for writer in range(case.writers)]
    verdict = Verdict(table, story, case.seed, [task.user for task in tasks], rows_of)
    judge(verdict, journals, random.Random(f"{case.seed}/samples"))
    for compactor in compactors:
        verdict.faults += [f"the compactor failed: {error}" for error in Journal(Path(compactor.journal)).of("error")]
    done = [[entry for entry in journal.entries() if "done" in entry] for journal in journals]
    return Outcome(
        case,
        verdict.faults,
        commits=[len(entries) for entries in done],
        aborted=[sum(entry["aborted"] for entry in entries) for entries in done],
        rewrites=[
            sum(entry["rewrites"] for entry in entries) / len(entries)
            for entries in done
            if entries and entries[0]["rewrites"] is not None
        ],
        commit_ms=[median(entry["ms"] for entry in entries) for entries in done if entries],
        kills=killed,
        compared=dict(verdict.compared),
    )


def fairness(outcome: Outcome) -> float:
    """Commits of the one who made fewer, as a share of the other's."""
    return min(outcome.commits) / max(1, max(outcome.commits))


def judge(verdict: Verdict, journals: Sequence[Journal], chance: random.Random, samples: int = SAMPLES) -> None:
    """All checks; the last ones after a full compaction."""
    verdict.check_commits(journals)
    verdict.check_rows("rows as read")
    verdict.check_history(chance, samples)
    try:
        verdict.table.compact(full=True)
    except StorageError as error:
        verdict.faults.append(f"compact(full=True) failed: {type(error).__name__}: {error}")
    verdict.look_again()
    verdict.check_rows("rows after a full compaction")
    verdict.check_changelog(chance, samples)


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """Every combination asked for that a table can have."""
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        for engine in arguments.engine or ENGINES:
            for producer in arguments.producer or PRODUCERS:
                for buckets in arguments.buckets or (1, 3):
                    if not is_refused(engine, producer):
                        yield Case(
                            engine,
                            producer,
                            buckets,
                            seed,
                            arguments.seconds,
                            writers=arguments.writers,
                            kills=arguments.kills,
                            compactor=arguments.kills or arguments.compactor,
                            rows=tuple(arguments.rows),
                            pauses_s=tuple(arguments.pauses),
                            takes_turns=arguments.turns,
                            options=tuple(tuple(text.split("=", 1)) for text in arguments.option),
                        )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.soak.two_writers", description=__doc__)
    made.add_argument("--seconds", type=float, default=6.0, help="time of each case (6)")
    made.add_argument("--engine", action="append", choices=list(STORIES), help="may be repeated; all if not given")
    made.add_argument("--producer", action="append", choices=list(PRODUCERS), help="may be repeated; all if not given")
    made.add_argument("--buckets", action="append", type=int, help="may be repeated; 1 and 3 if not given")
    made.add_argument("--seed", type=int, help="a new one if not given; it is printed")
    made.add_argument("--seeds", type=int, default=1, help="so many seeds, one after the other (1)")
    made.add_argument("--writers", type=int, choices=(1, 2), default=2, help="1 shows that the harness is right")
    made.add_argument("--kills", action="store_true", help="writers are killed and replay; a third process compacts")
    made.add_argument("--compactor", action="store_true", help="a third process compacts")
    made.add_argument(
        "--turns", action="store_true", help="writers wait for each other: shows that the harness is right"
    )
    made.add_argument("--rows", nargs="*", type=int, default=[], help="rows of a batch of each writer, as in 1000 1")
    made.add_argument("--pauses", nargs="*", type=float, default=[], help="seconds that each waits, as in 0.5 0")
    made.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the tables")
    made.add_argument("--keep", type=Path, help="a folder that keeps the tables of cases that went wrong")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Runs the cases; 1 if anything is wrong."""
    arguments = parser().parse_args(words)
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(1_000_000)
    wrong = total = 0
    with tempfile.TemporaryDirectory(prefix="two-writers-") as top, BusyProcesses(Path(top)) as processes:
        for number, case in enumerate(cases(arguments)):
            folder = Path(top, str(number))
            folder.mkdir()
            outcome = run_case(case, processes, folder)
            print(outcome, flush=True)
            total += 1
            wrong += bool(outcome.faults)
            if outcome.faults and arguments.keep:
                shutil.copytree(folder, arguments.keep / str(case).replace(" ", "-"), dirs_exist_ok=True)
            shutil.rmtree(folder)
    print(f"{wrong} of {total} cases are wrong, seeds from {arguments.seed}")
    return 1 if wrong else 0


def _plus(numbers: Sequence[float]) -> str:
    return " + ".join(f"{number:g}" for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
