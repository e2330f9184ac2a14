"""`python -m tests.kit.abrupt_end …` is pytest, in a process that ends without taking the interpreter apart.

For tests with Spark and Kafka. Tests of fatal errors and killed brokers leave clients of librdkafka behind, as
confluent-kafka loses an exception there, and what its traceback holds; their threads and those of py4j go on while
Python ends. A request of such a client that is answered then ends the process with SIGSEGV after all tests have passed.
How programs of users end is tested where they are started as programs.
"""

from __future__ import annotations

import os
import sys

import pytest

if __name__ == "__main__":
    code = int(pytest.main(sys.argv[1:]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
