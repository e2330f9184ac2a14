"""A real Kafka Connect with a connector of Debezium's: one process for one connector, without a cluster.

    with KafkaConnect.start(folder, bootstrap_servers, connector) as connect:
        … connect.runs() …

It runs from a group of the pinned jars (by default `debezium`, with the connector for PostgreSQL) and ends with its
parent process, however that ends. Its offsets are in a file of `folder`, beside its log.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from freshet.jobs.demo.child_process import free_ports, start_child, stop_child, tail
from freshet.pipeline.spark.jars import ensure_jars, java_command

DEBEZIUM_GROUP: Final = "debezium"
MAIN_CLASS: Final = "org.apache.kafka.connect.cli.ConnectStandalone"
ANSWER_TIMEOUT_S: Final = 30.0
JVM_OPTIONS: Final = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.io.debezium=info",
)
WORKER: Final = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "offset.flush.interval.ms": "1000",
    "plugin.discovery": "only_scan",
    "topic.creation.enable": "true",
}


class KafkaConnect:
    """One worker; `start` gives one that has been started; its connector runs some seconds later."""

    def __init__(self, folder: Path, bootstrap_servers: str, connector: Mapping[str, str], jars: str) -> None:
        self._name = connector["name"]
        [self._port] = free_ports(1)
        self._log_file = folder / "connect.log"
        self._files = [folder / "worker.properties", folder / "connector.properties"]
        worker = {
            **WORKER,
            "bootstrap.servers": bootstrap_servers,
            "listeners": f"http://127.0.0.1:{self._port}",
            "offset.storage.file.filename": str(folder / "connect.offsets"),
        }
        for file, settings in zip(self._files, (worker, connector), strict=True):
            file.touch(mode=0o600)  # the connector's have a password
            file.write_text(properties_text(settings))
        class_path = ":".join(map(str, ensure_jars(jars)))
        self._command: list[str | Path] = [java_command(), *JVM_OPTIONS, "-cp", class_path, MAIN_CLASS, *self._files]
        self._child: subprocess.Popen[Any] | None = None

    @classmethod
    @contextlib.contextmanager
    def start(
        cls, folder: Path, bootstrap_servers: str, connector: Mapping[str, str], jars: str = DEBEZIUM_GROUP
    ) -> Iterator[Self]:
        """Starts a worker with its files in `folder`, and finally stops it; `jars` is the group that it runs from."""
        connect = cls(folder, bootstrap_servers, connector, jars)
        with connect._log_file.open("ab") as log:
            connect._child = start_child(connect._command, log=log)
        try:
            yield connect
        finally:
            stop_child(connect._child)

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        assert self._child is not None
        return self._child.pid

    def runs(self) -> bool:
        """True when the connector and its task run."""
        states = self._states()
        return len(states) > 1 and set(states) == {"RUNNING"}

    def failure(self) -> str | None:
        """What has ended it, with the end of its log; None as long as nothing has."""
        assert self._child is not None
        if self._child.poll() is not None:
            return f"Kafka Connect has ended by itself (exit code {self._child.returncode}):\n{tail(self._log_file)}"
        if "FAILED" in self._states():
            return f"Debezium has failed:\n{tail(self._log_file)}"
        return None

    def has_logged(self, text: str) -> bool:
        """True when the log has a text."""
        return text in self._log_file.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL: what it has sent since it last kept its offsets is sent again by the next one."""
        assert self._child is not None
        self._child.kill()
        self._child.wait()

    def _states(self) -> list[str]:
        """RUNNING, FAILED …: of the connector, then of its tasks; empty as long as nothing answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/connectors/{self._name}/status", timeout=ANSWER_TIMEOUT_S
            ) as answer:
                status = json.load(answer)
        except OSError:
            return []
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]


def properties_text(settings: Mapping[str, str]) -> str:
    """A file of Java properties, in which a backslash stands for what comes after it."""
    lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in settings.items()]
    return "".join(line + "\n" for line in lines)
