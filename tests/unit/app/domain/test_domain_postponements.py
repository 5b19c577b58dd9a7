"""How long replays wait for the log."""

from app.domain.postponements import LONGEST_S, Postponements


def test_pauses_double_up_to_half_a_minute() -> None:
    postponements = Postponements()
    pauses = [postponements.next_pause_s("rp_1") for _ in range(7)]
    assert pauses == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S]


def test_each_replay_has_pauses_of_its_own_and_begins_anew_once_it_went_on() -> None:
    postponements = Postponements()
    for _ in range(3):
        postponements.next_pause_s("rp_1")
    assert postponements.next_pause_s("rp_2") == 1
    postponements.forget("rp_1")
    assert postponements.next_pause_s("rp_1") == 1
