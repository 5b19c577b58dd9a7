"""How many examples a property test runs: every run draws other ones.

`make unit` and `make test` use the profile `quick`. `make test-all` runs property tests again with
the profile `thorough`, which runs three times as many.
"""

from typing import Final

from hypothesis import settings

QUICK: Final = 7
THOROUGH: Final = 21


def register_profiles() -> None:
    """Register both profiles and load `quick`. Neither has a deadline: a busy machine is slow."""
    settings.register_profile("quick", deadline=None, max_examples=QUICK)
    settings.register_profile("thorough", deadline=None, max_examples=THOROUGH)
    settings.load_profile("quick")


def examples(number: int) -> settings:
    """Return the settings of a test with `number` examples in `thorough`, and fewer in `quick`."""
    return settings(max_examples=max(1, number * settings().max_examples // THOROUGH))
