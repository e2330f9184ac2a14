"""Peers in turn, round after round: the first round of each is cold, the median of the others is the warm figure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.peers import PeerError

Answer = Mapping[str, Any]
SLOW: Final = 5.0
"""A peer so many times slower than the fastest one, cold and in its first warm round, gets no further round."""
SHORT_SECONDS: Final = 1.0
"""Rounds that are shorter are not worth sparing."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Seconds of one peer on one measurement; the first round is cold, the rest are warm."""

    measurement: str
    peer: str
    threads: str
    rows: int
    seconds: tuple[float, ...]

    @property
    def cold_rate(self) -> float:
        """Rows per second of the first round."""
        return self.rows / self.seconds[0]

    @property
    def warm_seconds(self) -> float:
        """Median of the later rounds."""
        return statistics.median(self.seconds[1:] or self.seconds)

    @property
    def warm_rate(self) -> float:
        """Median rows per second of the later rounds."""
        return self.rows / self.warm_seconds


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who takes part in a measurement; `run` does it once and answers with seconds."""

    peer: str
    threads: str
    run: Callable[[], Answer]


def measure(
    name: str,
    contestants: Sequence[Contestant],
    rows: int,
    rounds: int,
    *,
    compare: bool = False,
    is_patient: bool = False,
) -> list[Figure]:
    """Runs everyone in turn, `rounds` times after the cold round.

    With `compare`, answers of a round must agree. Slow peers get all rounds only if it `is_patient`.
    """
    seconds: list[list[float]] = [[] for _ in contestants]
    slow: set[int] = set()
    for number in range(rounds + 1):
        answers: dict[str, Answer] = {}
        for index, contestant in enumerate(contestants):
            if number > 1 and index in slow:
                continue
            answer = contestant.run()
            taken = float(answer["seconds"])
            seconds[index].append(taken)
            answers[f"{contestant.peer}, {contestant.threads} threads"] = answer
            report(f"{name}: {contestant.peer} ({contestant.threads}), {_round(number)}: {taken:.3f} s")
        if compare:
            check_equal(answers)
        if number == 1 and not is_patient:
            slow = {index for index, series in enumerate(seconds) if _is_slow(series, seconds)}
    return [
        Figure(name, contestant.peer, contestant.threads, rows, tuple(series))
        for contestant, series in zip(contestants, seconds, strict=True)
    ]


def report(line: str) -> None:
    """Prints a line of progress at once."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def check_equal(answers: Mapping[str, Answer], *, only_rows: bool = False) -> None:
    """Raises `PeerError` unless all answers have the same number of rows and the same checksum."""
    sums = {name: (answer["rows"], None if only_rows else answer["checksum"]) for name, answer in answers.items()}
    if len(set(sums.values())) > 1:
        raise PeerError(f"the peers hold different rows: (rows, checksum) {sums}")


def _is_slow(series: Sequence[float], everyone: Sequence[Sequence[float]]) -> bool:
    return all(
        own > max(SHORT_SECONDS, SLOW * min(others))
        for own, others in zip(series, zip(*everyone, strict=True), strict=True)
    )


def warm_ms(batches: Sequence[tuple[int, float]]) -> float:
    """The median milliseconds of batches, each with its records: without the first, and the rest that is left over, by
    whose compaction it may be the longest of all."""
    most = max(records for records, _ in batches)
    whole = [ms for records, ms in batches if 2 * records >= most]
    return statistics.median(whole[1:] or whole)


def _round(number: int) -> str:
    return f"warm {number}" if number else "cold"
