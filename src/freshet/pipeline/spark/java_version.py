"""Whether the Java that Spark would start is there, and new enough: `java -version` is asked, which takes 50 ms."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from freshet.pipeline.spark.jars import JarError, java_command

JAVA_MIN: Final = 17
ANSWER_S: Final = 30.0

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
"""Java 8 calls itself 1.8."""


def java_problem() -> str | None:
    """Why Spark cannot start with the Java of this machine; None where nothing is wrong, or its answer is not known."""
    try:
        java = java_command()
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except JarError as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"`java -version` does not answer: {error}"
    found = _VERSION.search(done.stderr + done.stdout)
    if found is None or int(found[1]) >= JAVA_MIN:
        return None
    return f"{java} is Java {found[1]}, and Spark needs Java {JAVA_MIN} or newer; install it, or set JAVA_HOME"
