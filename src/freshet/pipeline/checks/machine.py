"""Whether this machine has what programs here need: versions of libraries, and of Java where Spark is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from operator import attrgetter
from typing import Final

from freshet._distribution import DISTRIBUTION
from freshet._frozen import Frozen
from freshet.pipeline.spark.jars import java_problem
from freshet.storage.status.finding import Finding, Rule, Severity, Sign, findings_of

MACHINE: Final = "this machine"

_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[^]]*\])?((?:[<>]=?[\d.]+,?)+)")
_BOUND: Final = re.compile(r"([<>]=?)([\d.]+)")


class Machine(Frozen):
    """What is wrong here."""

    misfits: tuple[str, ...]
    java: str | None


def machine_findings() -> list[Finding]:
    """What is wrong with this machine."""
    java = java_problem() if find_spec("pyspark") is not None else None
    facts = Machine(tuple(misfits(requires_of(DISTRIBUTION))), java)
    return sorted(findings_of(MACHINE_RULES, facts, MACHINE), key=attrgetter("severity.rank"))


def requires_of(distribution: str) -> list[str]:
    """Its requirements; none of a checkout that was not installed."""
    try:
        return requires(distribution) or []
    except PackageNotFoundError:
        return []


def misfits(requirements: list[str]) -> Iterator[str]:
    """Libraries that are installed in a version that is not asked for, such as `pyarrow 19.0.0, not >=23.0.0,<27`."""
    for text in dict.fromkeys(each.split(";")[0].replace(" ", "") for each in requirements):
        found = _REQUIREMENT.fullmatch(text)
        try:
            installed = None if found is None else version(found[1])
        except PackageNotFoundError:
            continue
        if found is not None and installed is not None and not _fits(installed, found[2]):
            yield f"{found[1]} {installed}, not {found[2]}"


def _fits(installed: str, bounds: str) -> bool:
    numbers = _numbers(installed)
    for sign, text in _BOUND.findall(bounds):
        bound = _numbers(text)
        width = max(len(numbers), len(bound))
        left, right = (each + (0,) * (width - len(each)) for each in (numbers, bound))
        if not {">=": left >= right, ">": left > right, "<=": left <= right, "<": left < right}[sign]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _misfits(machine: Machine) -> Sign | int:
    return Sign(len(machine.misfits), {"misfits": "; ".join(machine.misfits)}) if machine.misfits else 0


def _java(machine: Machine) -> Sign | int:
    return Sign(1, {"problem": machine.java}) if machine.java else 0


MACHINE_RULES: Final = (
    Rule(
        "libraries do not fit",
        Severity.ERROR,
        _misfits,
        "libraries of another version",
        "{misfits}",
        "Install Freshet again into an environment of its own: other versions write other files, or fail",
    ),
    Rule(
        "Java does not fit",
        Severity.WARNING,
        _java,
        "Java that Spark cannot start with",
        "{problem}",
        "Or run pipelines without Spark (run_on: local)",
    ),
)
