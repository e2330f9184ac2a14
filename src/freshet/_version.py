"""The version of the distribution; a checkout that was not installed has none."""

from __future__ import annotations

from typing import Final

from freshet._distribution import DISTRIBUTION, installed_version

__version__: Final = installed_version(DISTRIBUTION) or "0+unknown"
