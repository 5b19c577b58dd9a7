"""How long replays are postponed."""

from app.domain.postponements import LONGEST_S, Postponements


def test_pauses_double_up_to_half_a_minute() -> None:
    postponements = Postponements()
    pauses = [postponements.next_pause_s("rp_1") for _ in range(7)]
    assert pauses == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S]


def test_each_replay_has_its_own_pauses_which_are_reset_when_it_continues() -> None:
    postponements = Postponements()
    for _ in range(3):
        postponements.next_pause_s("rp_1")
    assert postponements.next_pause_s("rp_2") == 1
    postponements.forget("rp_1")
    assert postponements.next_pause_s("rp_1") == 1
