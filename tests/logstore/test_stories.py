"""What readers of both isolations hand out, story by story: crashes at each point, replays, zombies, losses.

S0 = {1: a}; both readers start there, so `+I 1 a` is not repeated in what they hand out.
"""

from __future__ import annotations

import pytest

from freshet.logstore.exceptions import LogLostError, LogTruncatedError
from tests.kit.log_story import TOPIC, Story

UPDATE = "-U 1 a | +U 1 b"


def test_n1_a_batch_is_shown_at_once_or_when_it_is_committed() -> None:
    story = Story()
    won = story.writer.log(1, UPDATE)
    assert (story.spec(), story.comm()) == (UPDATE, "")
    story.commit(1, won)
    assert (story.spec(), story.comm()) == ("", UPDATE)


def test_n2_an_equal_replay_is_silent() -> None:
    story = Story()
    story.writer.log(1, UPDATE)
    assert story.spec() == UPDATE
    story.commit(1, story.start().log(1, UPDATE))
    assert (story.spec(), story.comm()) == ("", UPDATE)


def test_n3_what_a_replay_does_not_repeat_is_taken_back_when_it_is_stable() -> None:
    story = Story()
    story.writer.log(1, UPDATE, "+I 2 x")
    assert story.spec() == f"{UPDATE} | +I 2 x"
    won = story.start().log(1, UPDATE)
    assert story.spec() == ""
    story.commit(1, won)
    assert (story.spec(), story.comm()) == ("-D 2 x", UPDATE)


def test_n4_from_the_first_difference_on_a_replay_takes_its_place() -> None:
    story = Story()
    story.writer.log(1, UPDATE)
    assert story.spec() == UPDATE
    won = story.start().log(1, "-U 1 a | +U 1 c")
    assert story.spec() == "-U 1 b | +U 1 c"
    story.commit(1, won)
    assert (story.spec(), story.comm()) == ("", "-U 1 a | +U 1 c")


def test_n5_an_empty_replay_takes_everything_back() -> None:
    story = Story()
    story.writer.log(1, "-D 1 a")
    assert story.spec() == "-D 1 a"
    story.commit(1, story.start().log(1))
    assert (story.spec(), story.comm()) == ("+I 1 a", "")


def test_rows_are_taken_back_last_one_first() -> None:
    story = Story()
    story.writer.log(1, "-D 1 a | +I 2 x", "-U 3 y | +U 3 z")
    story.spec()
    story.commit(1, {})
    assert story.spec() == "-U 3 z | +U 3 y | -D 2 x | +I 1 a"


def test_n6_the_snapshots_are_enough_without_a_commit_record() -> None:
    story = Story()
    story.commit(1, story.writer.log(1, UPDATE))
    assert (story.spec(), story.comm()) == (UPDATE, UPDATE)


def test_n7_a_replay_of_a_committed_batch_shows_nothing() -> None:
    story = Story()
    story.commit(1, story.writer.log(1, UPDATE))
    story.spec(), story.comm()
    story.start().log(1, UPDATE)
    assert (story.spec(), story.comm()) == ("", "")


def test_n8_a_zombie_after_the_commit_shows_nothing() -> None:
    story = Story()
    zombie = story.writer
    story.commit(1, story.start().log(1, UPDATE))
    story.spec(), story.comm()
    zombie.log(1, "+I 9 z")
    assert (story.spec(), story.comm()) == ("", "")


def test_n9_what_a_zombie_shows_before_the_commit_is_taken_back() -> None:
    story = Story()
    zombie = story.writer
    new = story.start()
    zombie.log(1, "+I 9 z")
    shown = story.spec()
    story.commit(1, new.log(1, UPDATE))
    assert (shown, story.spec(), story.comm()) == ("+I 9 z", f"-D 9 z | {UPDATE}", UPDATE)


def test_a_zombie_that_wins_the_commit_is_followed() -> None:
    story = Story()
    zombie, new = story.writer, story.start()
    new.log(1, UPDATE)
    assert story.spec() == UPDATE
    won = zombie.log(1, "-D 1 a")
    assert story.spec() == ""  # of an older epoch
    story.commit(1, won)
    assert (story.spec(), story.comm()) == ("-U 1 b | +U 1 a | -D 1 a", "-D 1 a")


def test_n10_a_reader_that_starts_at_a_snapshot_sees_nothing_of_dead_attempts_behind_it() -> None:
    story = Story()
    story.commit(1, story.writer.log(1, UPDATE))
    story.writer.log(1, "-D 1 a")
    assert [story.reader(speculative=flag)() for flag in (True, False)] == ["", ""]


def test_n11_a_lost_record_is_an_error() -> None:
    story = Story()
    story.spec(), story.comm()
    won = story.writer.log(1, "-D 1 a", "+I 2 x", "+I 3 y")
    story.log_.lose(TOPIC, 0, 2)
    with pytest.raises(LogLostError, match="at offset 3 the rows from 2 on of batch 1 follow row 1"):
        story.spec()
    story.commit(1, won)
    with pytest.raises(LogLostError, match="topic t partition 0.*after row 1 comes row 2, at offset 3"):
        story.comm()


def test_n11_a_lost_last_record_is_an_error_too() -> None:
    story = Story()
    won = story.writer.log(1, "-D 1 a", "+I 2 x")
    story.log_.lose(TOPIC, 0, 2)
    story.commit(1, won)
    for reader in (story.spec, story.comm):
        with pytest.raises(LogLostError, match="2 rows are asked for, 1 were found"):
            reader()


def test_n12_records_that_retention_took_are_an_error() -> None:
    story = Story()
    won = story.writer.log(1, "-D 1 a", "+I 2 x")
    story.commit(1, won)
    story.log_.truncate(TOPIC, 0, 2)
    for reader in (story.spec, story.comm):
        with pytest.raises(LogTruncatedError, match="topic t partition 0 has offsets 2 to 3, not 1"):
            reader()


def test_n13_a_record_that_came_twice_is_shown_once() -> None:
    story = Story()
    story.log_.duplicates = lambda: True
    won = story.writer.log(1, "-D 1 a", "+I 2 x")
    assert story.spec() == "-D 1 a | +I 2 x"
    story.commit(1, won)
    assert (story.spec(), story.comm()) == ("", "-D 1 a | +I 2 x")


@pytest.mark.parametrize("cut", range(4))
def test_n20_a_reader_that_is_restarted_from_its_state_goes_on(cut: int) -> None:
    def seen(restarts: bool) -> list[str]:
        story = Story()
        found = []
        won = {}
        for place, (batch, text) in enumerate([(1, UPDATE), (1, "-U 1 a | +U 1 c"), (1, "-D 1 a"), (2, "+I 5 q")]):
            if batch == 2:
                story.commit(1, won)
            won = story.start().log(batch, text)
            found.append(story.spec())
            if restarts and place == cut:
                story.spec.restart()
        return found

    assert seen(True) == seen(False)
    assert seen(True)[-1] == "+I 5 q"


def test_gaps_in_offsets_mean_nothing() -> None:
    story = Story()
    story.log_.gap(TOPIC, 0)
    won = story.writer.log(1, UPDATE)
    story.log_.gap(TOPIC, 0)
    assert story.spec() == UPDATE
    story.commit(1, won)
    assert story.comm() == UPDATE


def test_a_batch_is_not_opened_before_the_snapshots_were_looked_at() -> None:
    story = Story()
    story.commit(3, story.writer.log(3, UPDATE))  # numbers need not be neighbours
    story.writer.log(7, "-U 1 b | +U 1 c")
    assert story.spec() == f"{UPDATE} | -U 1 b | +U 1 c"


def test_a_batch_that_came_to_nothing_is_taken_back_by_the_next() -> None:
    story = Story()
    story.writer.log(1, "+I 2 x")
    assert story.spec() == "+I 2 x"
    won = story.writer.log(2, "+I 3 y")
    assert story.spec() == ""
    story.commit(2, won)
    assert (story.spec(), story.comm()) == ("-D 2 x | +I 3 y", "+I 3 y")
