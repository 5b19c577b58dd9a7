"""`rewind listen`: a local receiver that verifies and prints webhooks."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from datetime import UTC, datetime

import click

from app.cli.options import exit_with_error, printable
from app.webhooks.receiver import (
    ReceivedChallenge,
    ReceivedWebhook,
    SignatureStatus,
    WebhookReceiver,
)
from app.webhooks.signing import SecretRefused, check_secret


def _check_secret(_: click.Context, __: click.Parameter, secret: str | None) -> str | None:
    try:
        if secret is not None:
            check_secret(secret)
    except SecretRefused as refusal:
        raise click.BadParameter(str(refusal)) from None
    return secret


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True)
@click.option(
    "--secret",
    envvar="REWIND_SECRET",
    show_envvar=True,
    callback=_check_secret,
    help="Secret of the webhook. Arguments are visible in `ps`; use the variable.",
)
@click.option("--status", type=click.IntRange(200, 599), default=204, help="Response status.")
@click.option("--body", "with_body", is_flag=True, help="Print bodies.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def listen(
    host: str, port: int, secret: str | None, status: int, with_body: bool, as_json: bool
) -> None:
    """Receive webhooks and print them.

    It accepts every path and prints a line per webhook, until Ctrl-C. With a secret, it responds
    with 401 to invalid signatures and answers challenges (CRC). Pings are accepted with or without
    a secret.
    """
    printer = WebhookPrinter(as_json=as_json, with_body=with_body)
    receiver = WebhookReceiver(
        host,
        port,
        secret=secret,
        on_webhook=printer.print_webhook,
        on_challenge=printer.print_challenge,
    )
    receiver.answer(status)
    try:
        asyncio.run(_serve(receiver, printer))
    except OSError as error:
        exit_with_error(f"cannot listen on {host}:{port}: {error.strerror}")
    click.echo(printer.summary(), err=True)


class WebhookPrinter:
    """Prints webhooks and challenges, and counts them."""

    def __init__(self, *, as_json: bool, with_body: bool) -> None:
        self._as_json = as_json
        self._with_body = with_body
        self._verdicts: Counter[SignatureStatus] = Counter()
        self._pings = 0
        self._challenges = 0
        self.is_over = asyncio.Event()
        """Set when standard output was closed, or by a signal."""

    def print_webhook(self, webhook: ReceivedWebhook) -> None:
        """Print and count a webhook. Pings are counted separately."""
        if webhook.is_ping:
            self._pings += 1
        else:
            self._verdicts[webhook.signature] += 1
        describe = _json_line if self._as_json else _line
        self._print(describe(webhook, with_body=self._with_body))

    def print_challenge(self, challenge: ReceivedChallenge) -> None:
        """Print and count a challenge."""
        self._challenges += 1
        describe = _challenge_json_line if self._as_json else _challenge_line
        self._print(describe(challenge))

    def _print(self, line: str) -> None:
        try:
            click.echo(line)
        except BrokenPipeError:
            # As with `| head`. Python flushes stdout again at exit; /dev/null accepts that.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.is_over.set()

    def summary(self) -> str:
        """Return the counts in one line."""
        counts = ", ".join(f"{self._verdicts[verdict]} {verdict}" for verdict in SignatureStatus)
        others = f"{self._pings} pings, {self._challenges} challenges"
        return f"{self._verdicts.total()} webhooks received: {counts}; {others}"


async def _serve(receiver: WebhookReceiver, printer: WebhookPrinter) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, printer.is_over.set)
    await receiver.start()
    click.echo(f"rewind listen ready on {receiver.url}", err=True)
    await printer.is_over.wait()
    await receiver.stop()


def _line(webhook: ReceivedWebhook, *, with_body: bool) -> str:
    note = f" ({webhook.problem})" if webhook.problem else ""
    columns = (
        _time(webhook.received_ms),
        webhook.event_id or "-",
        _event_type(webhook.body) or "-",
        webhook.replay_id or "-",
        f"{webhook.signature}{note}",
        *([_text(webhook.body)] if with_body else []),
    )
    return "  ".join(printable(column) for column in columns)


def _json_line(webhook: ReceivedWebhook, *, with_body: bool) -> str:
    return json.dumps(
        {
            "time": _time(webhook.received_ms),
            "path": webhook.path,
            "eventId": webhook.event_id or None,
            "type": _event_type(webhook.body),
            "replayId": webhook.replay_id,
            "status": webhook.status,
            "signature": webhook.signature,
            "problem": webhook.problem,
            **({"body": _text(webhook.body)} if with_body else {}),
        }
    )


def _challenge_line(challenge: ReceivedChallenge) -> str:
    outcome = "answered" if challenge.is_answered else "refused (no secret given)"
    return "  ".join((_time(challenge.received_ms), "-", "challenge", "-", outcome))


def _challenge_json_line(challenge: ReceivedChallenge) -> str:
    return json.dumps(
        {
            "time": _time(challenge.received_ms),
            "path": challenge.path,
            "type": "challenge",
            "isAnswered": challenge.is_answered,
        }
    )


def _time(received_ms: int) -> str:
    moment = datetime.fromtimestamp(received_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(body: bytes) -> str:
    return body.decode(errors="replace")


def _event_type(body: bytes) -> str | None:
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return None
    kind = event.get("type") if isinstance(event, dict) else None
    return kind if isinstance(kind, str) else None
