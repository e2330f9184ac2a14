"""Settings under `spark:` whose wrong value is known without Spark, which would answer it with a Java trace.

What is not listed is passed on; where Spark refuses it, the start of the session says so with the same key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from freshet.pipeline.exceptions import KeyPath, Problem

_MASTER: Final = re.compile(
    r"local|local\[(\d+|\*)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|(spark|k8s)://.+"
)
_MEMORY: Final = re.compile(r"\d+\s*([kmgtp]b?)?", re.IGNORECASE)
_WHOLE: Final = re.compile(r"[1-9]\d{0,8}")
_WANTED: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "spark.master": (_MASTER, "local[*], local[4], spark://host:7077, yarn or k8s://…"),
    "spark.driver.memory": (_MEMORY, "a size such as 2g or 512m"),
    "spark.executor.memory": (_MEMORY, "a size such as 2g or 512m"),
    "spark.executor.cores": (_WHOLE, "a whole number of 1 or more"),
    "spark.driver.cores": (_WHOLE, "a whole number of 1 or more"),
    "spark.sql.shuffle.partitions": (_WHOLE, "a whole number of 1 or more"),
}
_PREFIX: Final = "spark."


def wrong_spark_values(settings: Mapping[str, str], key_path: KeyPath) -> Iterator[Problem]:
    """Settings that Spark would refuse or not see, with their keys in the file."""
    for key, value in settings.items():
        if not key.startswith(_PREFIX):
            yield Problem(
                (*key_path, key), f"is no setting of Spark: those begin with {_PREFIX!r}, such as spark.master"
            )
            continue
        pattern, wanted = _WANTED.get(key, (None, ""))
        if pattern is not None and not pattern.fullmatch(value.strip()):
            yield Problem((*key_path, key), f"wants {wanted}, not {value!r}")
