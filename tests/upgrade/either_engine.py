"""The engines that go on with what an archive has: each run of CI has Spark, which has written it."""

from __future__ import annotations

from typing import Final

import pytest

ENGINES: Final = ["local", pytest.param("spark", marks=pytest.mark.always("upgrade archives"))]
