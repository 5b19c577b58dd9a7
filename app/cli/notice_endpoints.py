"""`rewind notice-endpoints`: register, list, change, test and delete endpoints for notices."""

import json
from typing import Any

import click

from app.cli.api_client import call_api
from app.cli.options import api_options
from app.domain.account_notices import NoticeType
from app.domain.mail import as_endpoint_url

_LIST_MAX = 200
_GRACE_S_MAX = 604_800

_description = click.option("--description", help="Free text.")
_types = click.option(
    "--event-type",
    "event_types",
    multiple=True,
    type=click.Choice([each.value for each in NoticeType]),
    help="A notice to send. Repeatable.",
)


@click.group("notice-endpoints")
def notice_endpoints() -> None:
    """Manage the URLs that get notices about an account's webhooks and replays.

    Prints endpoints as JSON, one per line.
    """


@notice_endpoints.command("list")
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_endpoints(limit: int, **overrides: str | None) -> None:
    """List notice endpoints, latest first."""
    for endpoint in call_api(overrides, lambda client: client.notice_endpoints(limit=limit)):
        _print(endpoint)


@notice_endpoints.command()
@click.argument("endpoint_id")
@api_options
def show(endpoint_id: str, **overrides: str | None) -> None:
    """Show a notice endpoint."""
    _print(call_api(overrides, lambda client: client.notice_endpoint(endpoint_id)))


@notice_endpoints.command()
@click.argument("url")
@_description
@_types
@click.option("--account-id", help="For operators: the account, if it is not their own.")
@api_options
def create(
    url: str,
    description: str | None,
    event_types: tuple[str, ...],
    account_id: str | None,
    **overrides: str | None,
) -> None:
    """Register URL for notices: by default all. Prints the endpoint with its secret.

    URL may be an e-mail address. It gets a mail with a code: pass it to `confirm`.
    """
    members = {
        "url": as_endpoint_url(url),
        "description": description,
        "eventTypes": list(event_types) or None,
        "accountId": account_id,
    }
    given = {name: value for name, value in members.items() if value is not None}
    _print(call_api(overrides, lambda client: client.create_notice_endpoint(given)))


@notice_endpoints.command()
@click.argument("endpoint_id")
@click.option("--url", help="Send notices to this URL or address, once it is verified.")
@_description
@_types
@click.option("--all-event-types", is_flag=True, help="Send all notices.")
@api_options
def update(
    endpoint_id: str,
    url: str | None,
    description: str | None,
    event_types: tuple[str, ...],
    all_event_types: bool,
    **overrides: str | None,
) -> None:
    """Change a notice endpoint. What is not given stays as it is."""
    if event_types and all_event_types:
        raise click.UsageError("--event-type and --all-event-types exclude each other")
    members = {"url": url and as_endpoint_url(url), "description": description}
    changes: dict[str, object] = {
        name: value for name, value in members.items() if value is not None
    }
    if event_types or all_event_types:
        changes["eventTypes"] = list(event_types) or None
    if not changes:
        raise click.UsageError("no change given; see --help for the options")
    _print(call_api(overrides, lambda client: client.update_notice_endpoint(endpoint_id, changes)))


@notice_endpoints.command("rotate-secret")
@click.argument("endpoint_id")
@click.option(
    "--grace-period",
    type=click.IntRange(0, _GRACE_S_MAX),
    help="For how many seconds the previous secret also signs. Default: a day.",
)
@api_options
def rotate_secret(endpoint_id: str, grace_period: int | None, **overrides: str | None) -> None:
    """Give a notice endpoint a new secret. Prints the endpoint with the secret."""
    body = {} if grace_period is None else {"gracePeriodSeconds": grace_period}
    _act(overrides, endpoint_id, "secret/rotate", **body)


@notice_endpoints.command()
@click.argument("endpoint_id")
@api_options
def enable(endpoint_id: str, **overrides: str | None) -> None:
    """Verify the receiver of a notice endpoint, and enable it.

    An e-mail address that is not confirmed gets another mail with a code.
    """
    _act(overrides, endpoint_id, "enable")


@notice_endpoints.command()
@click.argument("endpoint_id")
@click.argument("code")
@api_options
def confirm(endpoint_id: str, code: str, **overrides: str | None) -> None:
    """Confirm the e-mail address of a notice endpoint with the CODE that was sent to it."""
    _act(overrides, endpoint_id, "confirm", code=code)


@notice_endpoints.command()
@click.argument("endpoint_id")
@click.option("--reason", help="Why; shown with the endpoint.")
@api_options
def disable(endpoint_id: str, reason: str | None, **overrides: str | None) -> None:
    """Disable a notice endpoint, and delete its pending notices."""
    _act(overrides, endpoint_id, "disable", **({} if reason is None else {"reason": reason}))


@notice_endpoints.command()
@click.argument("endpoint_id")
@api_options
def test(endpoint_id: str, **overrides: str | None) -> None:
    """Send a test event or mail to a notice endpoint. Prints the response."""
    _act(overrides, endpoint_id, "test")


@notice_endpoints.command()
@click.argument("endpoint_id")
@api_options
def delete(endpoint_id: str, **overrides: str | None) -> None:
    """Delete a notice endpoint and its pending notices."""
    call_api(overrides, lambda client: client.delete_notice_endpoint(endpoint_id))
    click.echo(f"deleted {endpoint_id}", err=True)


def _act(overrides: dict[str, str | None], endpoint_id: str, action: str, **body: object) -> None:
    _print(
        call_api(
            overrides, lambda client: client.act_on_notice_endpoint(endpoint_id, action, **body)
        )
    )


def _print(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document))
