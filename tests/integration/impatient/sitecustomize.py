"""Python imports this at its start where a test puts this folder on the path: schema registries are waited for less.

The driver of a pipeline and the workers that Spark forks for it wait for a registry that is away for half a minute
before they say so. What they say then does not depend on how long it was; a test that runs both need not wait for it.
"""

from freshet.logstore.kafka import schema_registry

schema_registry.WAIT_S = 3.0  # type: ignore[misc]
