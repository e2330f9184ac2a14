"""What is said of an error that Spark has wrapped in a query plan, a Java trace and a worker's trace."""

from __future__ import annotations

from freshet.pipeline.exceptions import brief_reason

WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure:
Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/opt/pyspark/worker.py", line 3354, in main
    func, profiler, deserializer, serializer = read_udfs(pickleSer, infile, eval_type)
ModuleNotFoundError: No module named 'msgspec'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/pyspark/serializers.py", line 184, in _read_with_length
    return self.loads(obj)
           ^^^^^^^^^^^^^^^
ModuleNotFoundError: No module named 'freshet'

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:2)

Driver stacktrace:
"""


def test_the_last_exception_of_a_worker_is_the_message() -> None:
    assert (
        brief_reason(RuntimeError(WORKER)) == "a Python worker failed: ModuleNotFoundError: No module named 'freshet'"
    )


def test_a_message_of_several_lines_is_kept_whole() -> None:
    text = 'x\nTraceback (most recent call last):\n  File "a.py", line 1\n    f()\nValueError: one\ntwo\n\tat java'
    assert brief_reason(RuntimeError(text)) == "a Python worker failed: ValueError: one\ntwo"


def test_errors_without_a_worker_are_cut_at_the_plan() -> None:
    assert brief_reason(RuntimeError("no such column\n'Project [x]\n+- Scan")) == "no such column"
    assert brief_reason(ValueError()) == "ValueError"
