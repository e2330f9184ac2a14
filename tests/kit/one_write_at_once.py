"""moto's server with one write at a time.

    python tests/kit/one_write_at_once.py -H 127.0.0.1 -p PORT      the arguments are moto's

moto answers requests in threads and checks `If-None-Match` before it puts, without a lock between the two
(`moto.s3.responses.put_object`, 5.2.5): of 20 creates of one name two have won, once in about 12 runs of the test on a
busy machine. S3 takes both in one step. versitygw, the other server of the tests, has a lock for each object.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import main

_WRITING = threading.Lock()


class OneWriteAtOnce(DomainDispatcherApplication):
    """Reads are answered meanwhile."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return super().__call__(environ, start_response)
        with _WRITING:
            return super().__call__(environ, start_response)


if __name__ == "__main__":
    sys.modules[main.__module__].DomainDispatcherApplication = OneWriteAtOnce  # type: ignore[attr-defined]
    main()
