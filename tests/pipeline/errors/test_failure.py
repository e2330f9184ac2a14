"""The kind of an error and its exit code survive every way that an error takes to the terminal."""

from __future__ import annotations

import errno
import inspect

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from freshet.logstore import exceptions as log_errors
from freshet.pipeline.errors.error_kind import ErrorKind, exit_code, kind_of_class, qualified_name, worst
from freshet.pipeline.errors.failure import exit_code_of, is_retryable, kind_of, kind_of_foreign, ran_out_of_memory
from freshet.pipeline.exceptions import (
    ConfigurationError,
    PipelineFailedError,
    StoppedByRecordError,
    brief_reason,
)
from freshet.pipeline.query.wire.task_result import encode_error, sum_results
from freshet.storage import exceptions

ALL_ERRORS = [
    each
    for module in (exceptions, log_errors)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if issubclass(each, exceptions.StorageError) and each is not exceptions.StorageError
]


class LocalError(log_errors.LogUnavailableError):
    """A class that no table lists and whose __init__ wants more than a text."""

    def __init__(self, broker: str, *, port: int) -> None:
        super().__init__(f"no answer from {broker}")
        self.port = port
        self.broker = object()


def as_raised(error: Exception) -> Exception:
    """What the driver raises of an error that a worker reported as a result."""
    (row,) = encode_error(error).column(0).to_pylist()
    with pytest.raises(exceptions.StorageError) as raised:
        sum_results([row])
    return raised.value


def traced(error: BaseException) -> str:
    """What Spark says of an error that a worker raised."""
    name = qualified_name(type(error)).removeprefix("builtins.")
    return (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
        f'PythonException: Traceback (most recent call last):\n  File "worker.py", line 1\n    f()\n{name}: {error}\n'
        "\tat org.apache.spark.api.python.X\nDriver stacktrace:\n"
    )


@pytest.mark.parametrize("error_class", ALL_ERRORS, ids=lambda each: each.__name__)
def test_every_class_keeps_its_kind_as_a_result_and_as_a_trace(error_class: type[exceptions.StorageError]) -> None:
    error = error_class("what happened, and what to do")
    kind = kind_of(error)
    assert kind is not ErrorKind.INTERNAL
    assert kind in [each.__name__ for each in error_class.__mro__]
    arrived = as_raised(error)
    assert type(arrived) is error_class
    assert (str(arrived), kind_of(arrived)) == (str(error), kind)
    assert kind_of_foreign(traced(error)) is kind
    assert brief_reason(RuntimeError(traced(error))) == str(error)


def test_a_class_that_the_driver_knows_nothing_of_arrives_as_the_nearest_that_it_knows() -> None:
    error = LocalError("kafka-1", port=9092)
    assert type(as_raised(error)) is LocalError

    class HiddenError(LocalError):
        pass

    arrived = as_raised(HiddenError("kafka-1", port=9092))
    assert type(arrived) is LocalError
    assert vars(arrived)["port"] == 9092
    assert (str(arrived), kind_of(arrived)) == ("no answer from kafka-1", ErrorKind.RETRYABLE)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ErrorKind.RETRYABLE),
        (OSError(errno.EACCES, "Permission denied"), ErrorKind.INVALID_REQUEST),
        (OSError(errno.EFBIG, "File too large"), ErrorKind.INVALID_REQUEST),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), ErrorKind.RETRYABLE),
        (TimeoutError("no answer"), ErrorKind.RETRYABLE),
        (OSError(errno.EIO, "Input/output error"), ErrorKind.INTERNAL),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), ErrorKind.RETRYABLE),
        (MemoryError(), ErrorKind.RETRYABLE),
        (pa.ArrowMemoryError("malloc of size 64 failed"), ErrorKind.RETRYABLE),
        (KeyError("field"), ErrorKind.INTERNAL),
        (PipelineFailedError("RetryableError: full", kind=ErrorKind.RETRYABLE), ErrorKind.RETRYABLE),
        (StoppedByRecordError("unknown field"), ErrorKind.INVALID_REQUEST),
        (ConfigurationError("no such key"), ErrorKind.INVALID_REQUEST),
        (exceptions.StorageError("bare"), ErrorKind.INTERNAL),
    ],
    ids=repr,
)
def test_other_errors(raised: BaseException, kind: ErrorKind) -> None:
    assert kind_of(raised) is kind
    assert kind_of_foreign(traced(raised)) is kind


@pytest.mark.parametrize(
    "raised",
    [
        MemoryError(),
        MemoryError("no room"),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        exceptions.OutOfMemoryError("not enough memory to read a file"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=repr,
)
def test_memory_that_ran_out_is_known_here_in_a_worker_and_as_a_cause(raised: Exception) -> None:
    told = PipelineFailedError("a task failed", kind=ErrorKind.RETRYABLE)
    told.__cause__ = PySparkException(traced(raised))
    assert ran_out_of_memory(raised)
    assert ran_out_of_memory(told)


@pytest.mark.parametrize(
    "raised", [exceptions.RetryableError("full"), OSError(errno.ENOSPC, "full"), KeyError("memory")]
)
def test_other_errors_are_none_of_memory(raised: Exception) -> None:
    assert not ran_out_of_memory(raised)
    assert not ran_out_of_memory(PySparkException(traced(raised)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "[STREAM_FAILED] Query terminated with exception: java.util.concurrent.ExecutionException: "
            "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment. SQLSTATE: XXKST",
            ErrorKind.RETRYABLE,
        ),
        ("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server", ErrorKind.RETRYABLE),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: denied", ErrorKind.INVALID_REQUEST),
        ("org.apache.kafka.common.errors.TopicAuthorizationException: [t]", ErrorKind.INVALID_REQUEST),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost", ErrorKind.INVALID_REQUEST),
        ("java.net.ConnectException: Connection refused", ErrorKind.RETRYABLE),
        ("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)", ErrorKind.RETRYABLE),
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", ErrorKind.INVALID_REQUEST),
        ("[FAILED_READ_FILE.NO_HINT] Encountered error while reading a.gz. SQLSTATE: KD001", ErrorKind.CORRUPT_DATA),
        ("[UNRESOLVED_COLUMN] x. SQLSTATE: 42703", ErrorKind.INVALID_REQUEST),
        ("java.lang.NullPointerException", ErrorKind.INTERNAL),
    ],
)
def test_what_spark_and_kafka_say(text: str, kind: ErrorKind) -> None:
    assert kind_of_foreign(text) is kind


@pytest.mark.parametrize(
    ("kind", "before", "running"),
    [
        (ErrorKind.RETRYABLE, 75, 75),
        (ErrorKind.CONFLICT, 75, 75),
        (ErrorKind.UNKNOWN_OUTCOME, 1, 75),
        (ErrorKind.CORRUPT_DATA, 65, 65),
        (ErrorKind.INVALID_REQUEST, 2, 65),
        (ErrorKind.INTERNAL, 1, 1),
    ],
)
def test_exit_codes(kind: ErrorKind, before: int, running: int) -> None:
    assert (exit_code(kind, while_running=False), exit_code(kind, while_running=True)) == (before, running)
    failed = PipelineFailedError("text", kind=kind)
    assert (exit_code_of(failed), is_retryable(failed)) == (running, running == 75)


def test_of_several_65_counts_before_1_and_1_before_75() -> None:
    for kinds, code in (
        ([ErrorKind.RETRYABLE, ErrorKind.INTERNAL, ErrorKind.CORRUPT_DATA], 65),
        ([ErrorKind.CONFLICT, ErrorKind.INVALID_REQUEST], 65),
        ([ErrorKind.RETRYABLE, ErrorKind.INTERNAL, ErrorKind.UNKNOWN_OUTCOME], 1),
        ([ErrorKind.RETRYABLE, ErrorKind.CONFLICT], 75),
    ):
        assert exit_code(worst(kinds), while_running=True) == code


def test_a_class_of_users_is_known_by_what_it_inherits_from() -> None:
    assert kind_of_class(LocalError) is ErrorKind.RETRYABLE
    assert kind_of_class(ValueError) is ErrorKind.INTERNAL
