"""Settings of Hypothesis for all suites; where there is no conftest, a plugin: `-p tests.kit.hypothesis_profile`.

Examples are reproducible and never timed: the machine is shared, a slow example is not a failure.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "freshet", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("ci", parent=settings.get_profile("freshet"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "freshet")
