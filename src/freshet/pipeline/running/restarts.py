"""When a pipeline that failed is started again: a rule, decided purely.

    fails        1st   2nd   3rd   4th   5th   6th
    waits        2 s   4 s   8 s   16 s  32 s  given up

Only failures that are worth another try are tried again. A pipeline that came further than at the failure before, or
has run for `reset_s`, begins at the first wait again.
"""

from __future__ import annotations

from freshet._frozen import Frozen


class Restart(Frozen):
    """A start to come: the `number`-th in a row, after so many seconds."""

    number: int
    wait_s: float


class RestartRule(Frozen):
    """How often in a row, and after which waits; each is twice as long as the one before."""

    count_max: int = 5
    first_wait_s: float = 2.0
    wait_max_s: float = 60.0
    reset_s: float = 600.0

    def next(self, number: int, ran_s: float, *, has_progressed: bool = False) -> Restart | None:
        """What follows a failure `ran_s` after the `number`-th restart in a row; None where it is given up."""
        following = 1 if has_progressed or ran_s >= self.reset_s else number + 1
        if following > self.count_max:
            return None
        return Restart(following, min(self.wait_max_s, self.first_wait_s * 2 ** (following - 1)))


NO_RESTARTS = RestartRule(count_max=0)
