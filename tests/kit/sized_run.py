"""`freshet run` on either engine with default settings over a topic of sized records, and the memory that it took."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from freshet.jobs.demo.kafka_broker import ForeignBroker
from tests.kit.memory_watch import MemoryWatch

ROOT = Path(__file__).resolve().parents[2]

JVM_MB = 1024 + 700
"""Spark's default heap for a driver, and what a JVM needs besides: classes, threads, Arrow and network buffers."""

PYTHON_MB = 256 + 450
"""The default write buffer of a worker, its libraries, and what it decodes at a time."""

TIMEOUT_S = 1800

_PIPELINE = """\
name: sized
sources:
  - kafka: {{kafka.bootstrap.servers: "{servers}", subscribe: "{topic}", startingOffsets: earliest{options}}}
    format: json
table:
  warehouse: "{folder}/warehouse"
  name: a.sized
  columns: {{id: BIGINT, doc: STRING}}
  primary_key: [id]
  options: {{bucket: 2}}
trigger: {{available_now: true}}
checkpoint: "{folder}/checkpoint"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended."""

    code: int
    output: str
    jvm_mb: int
    python_mb: int
    sum_mb: int

    def check_memory(self, python_mb: int = PYTHON_MB) -> None:
        """The run went through within the bounds."""
        print(f"peaks: JVM {self.jvm_mb} MB, largest Python process {self.python_mb} MB, all together {self.sum_mb} MB")
        assert self.code == 0, self.output
        assert self.jvm_mb < JVM_MB and self.python_mb < python_mb, f"JVM {self.jvm_mb}, Python {self.python_mb} MB"


def run_sized(broker: ForeignBroker, topic: str, folder: Path, *, on: str = "spark", **options: str) -> Ran:
    """Runs a pipeline on an engine from the topic into a table below the folder; `options` are more options of the
    source."""
    file = folder / "sized.yaml"
    given = "".join(f', kafka.{key.replace("_", ".")}: "{value}"' for key, value in options.items())
    servers = broker.bootstrap_servers
    file.write_text(_PIPELINE.format(servers=servers, topic=topic, folder=folder, options=given))
    command = [sys.executable, "-m", "freshet", "run", str(file), "--on", on]
    with (folder / "output").open("w+") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            with MemoryWatch(child.pid) as watch:
                code = child.wait(TIMEOUT_S)
        finally:
            child.kill()
            child.wait()
        output.seek(0)
        return Ran(code, output.read()[-10_000:], watch.jvm_mb, watch.python_mb, watch.sum_mb)
