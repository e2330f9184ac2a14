"""Settings of Hypothesis for all suites; where there is no conftest, a plugin: `-p tests.kit.hypothesis_profile`.

Examples are reproducible and never timed: the machine is shared, a slow example is not a failure. `make test` draws a
tenth of them; with `FRESHET_ALL_EXAMPLES=1`, as in `make test-all`, all are drawn, now and then with constants of the
source, for which each process parses it.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

ALL_EXAMPLES = "FRESHET_ALL_EXAMPLES"
EXAMPLES_MIN = 3


def examples(count: int) -> int:
    """How many of a property's examples are drawn in this run."""
    return count if os.environ.get(ALL_EXAMPLES) else max(min(count, EXAMPLES_MIN), count // 10)


if not os.environ.get(ALL_EXAMPLES):
    providers._get_local_constants = lambda: providers._local_constants  # the constants of all modules: seconds of CPU

settings.register_profile(
    "freshet",
    max_examples=examples(100),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("ci", parent=settings.get_profile("freshet"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "freshet")
