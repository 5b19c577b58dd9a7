import pytest

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.raw import retries
from logbroker.client.raw.parsing.errors import AttemptFailed
from logbroker.client.raw.retries import RetryTimer


def test_a_repeated_failure_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    patience = RetryTimer("asking for topics", 60.0, 0.001)
    patience.wait_or_raise(AttemptFailed("127.0.0.1:1: refused"))
    assert caplog.messages == []
    monkeypatch.setattr(retries, "WARN_AFTER_S", 0.0)
    patience.wait_or_raise(AttemptFailed("127.0.0.1:1: refused"))
    patience.wait_or_raise(AttemptFailed("127.0.0.1:1: refused"))
    (warning,) = caplog.messages
    assert warning.startswith("asking for topics fails, and is tried for ")
    assert warning.endswith(" s more: 127.0.0.1:1: refused")


def test_a_timeout_reports_the_last_failure() -> None:
    with pytest.raises(BrokersUnavailable, match=r"^fetching failed for 0 s; last error: refused$"):
        RetryTimer("fetching", 0.0, 0.001).wait_or_raise(AttemptFailed("refused"))
