import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.webhooks.guard import Guard
from app.webhooks.request import HeaderRefused, encode_get, encode_post, webhook_headers
from app.webhooks.sender import retry_after_s
from app.webhooks.signing import verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TARGET = Guard().check_url("https://example.com/hook?a=b")

# Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110 section 5.6.7.
RFC_MOMENT_S = 784_111_777.0


def test_headers_are_those_of_standard_webhooks() -> None:
    headers = webhook_headers([SECRET], "evt_1", 1_700_000_000, b"{}")
    verify(SECRET, headers, b"{}", 1_700_000_000)
    assert headers["webhook-id"] == "evt_1"
    assert headers["content-type"] == "application/json"
    assert "webhook-replay-id" not in headers


def test_a_replay_adds_its_id_and_keeps_the_event_id() -> None:
    headers = webhook_headers([SECRET], "evt_1", 1_700_000_000, b"{}", "rpl_1")
    assert headers["webhook-id"] == "evt_1"
    assert headers["webhook-replay-id"] == "rpl_1"


def test_an_extra_header_is_added_and_replaces_no_other() -> None:
    extra = {"webhook-batch-size": "7", "webhook-id": "mine"}
    headers = webhook_headers([SECRET], "batch_1", 1_700_000_000, b"[]", "rpl_1", extra=extra)
    assert headers["webhook-batch-size"] == "7"
    assert headers["webhook-id"] == "batch_1"
    verify(SECRET, headers, b"[]", 1_700_000_000)
    assert extra == {"webhook-batch-size": "7", "webhook-id": "mine"}


def test_a_request_has_the_bytes_of_the_rfc() -> None:
    assert encode_post(TARGET, {"webhook-id": "evt_1"}, b"{}") == (
        b"POST /hook?a=b HTTP/1.1\r\nhost: example.com\r\nwebhook-id: evt_1\r\n"
        b"content-length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://example.com", b"/?crc_token=a%2Fb"),
        ("https://example.com/hook?", b"/hook?crc_token=a%2Fb"),
        ("https://example.com/hook?a=b", b"/hook?a=b&crc_token=a%2Fb"),
    ],
)
def test_a_get_appends_its_query_to_that_of_the_url(url: str, path: bytes) -> None:
    target = Guard().check_url(url)
    assert encode_get(target, {"crc_token": "a/b"}, {"accept": "*/*"}) == (
        b"GET " + path + b" HTTP/1.1\r\nhost: example.com\r\naccept: */*\r\n\r\n"
    )


@given(
    st.dictionaries(st.text(max_size=5), st.text(st.characters(exclude_categories=["Cs"]))),
    st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3),
)
def test_a_get_of_any_query_is_one_request(query: dict[str, str], headers: dict[str, str]) -> None:
    try:
        request = encode_get(TARGET, query, headers)
    except HeaderRefused:
        return
    lines = request.removesuffix(b"\r\n\r\n").split(b"\r\n")
    assert len(lines) == 2 + len(headers)
    assert lines[0].count(b" ") == 2
    assert b"\n" not in b"".join(lines)


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "é", " a", "a ", "a\tb"])
def test_a_header_value_that_cannot_be_sent_unchanged_is_refused(value: str) -> None:
    with pytest.raises(HeaderRefused, match="header webhook-id is"):
        encode_post(TARGET, {"webhook-id": value}, b"")


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "Host", "content-length"])
def test_an_invalid_or_framing_header_name_is_refused(name: str) -> None:
    with pytest.raises(HeaderRefused, match="header name is"):
        encode_post(TARGET, {name: "x"}, b"")


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3))
def test_headers_cannot_inject_others(headers: dict[str, str]) -> None:
    try:
        request = encode_post(TARGET, headers, b"body")
    except HeaderRefused:
        return
    assert request.count(b"\r\n") == len(headers) + 4
    assert b"\r\n\r\n" not in request.removesuffix(b"\r\n\r\nbody")


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("9999999999", 9_999_999_999.0),
        ("99999999999", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("", None),
        ("soon", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 60.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 60.0),
        ("Sun Nov  6 08:49:37 1994", 60.0),
        ("Sun, 06 Nov 1994 08:48:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:40:00 GMT", 0.0),
        ("Sun, 99 Nov 1994 08:40:00 GMT", None),
    ],
)
def test_retry_after_is_parsed_in_every_form_of_the_rfc(value: str, wait_s: float | None) -> None:
    assert retry_after_s(value, RFC_MOMENT_S - 60) == wait_s


@given(st.text(max_size=40))
def test_any_retry_after_is_a_wait_or_none(value: str) -> None:
    wait_s = retry_after_s(value, RFC_MOMENT_S)
    assert wait_s is None or wait_s >= 0
