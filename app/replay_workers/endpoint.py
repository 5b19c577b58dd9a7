"""The URL that a replay sends to, and whether it may send there."""

from app.domain.model import Replay, Webhook, WebhookStatus
from app.replay_workers.errors import ReplayPostponed, ReplayRefused, WebhookDisabled
from app.webhooks.guard import Guard, UrlRefused


class ReplayEndpoint:
    """The webhook of a replay, or the replay's `targetUrl`.

    `webhook` is replaced during a long replay: a secret is rotated, or its URL changes.
    """

    def __init__(self, replay: Replay, webhook: Webhook, guard: Guard) -> None:
        self._target_url = replay.options.target_url
        self._guard = guard
        self.webhook = webhook

    @property
    def url(self) -> str:
        """The URL to send to."""
        return self._target_url or self.webhook.url

    @property
    def is_webhook(self) -> bool:
        """Whether requests go to the webhook's own URL."""
        return self._target_url is None

    def check(self) -> None:
        """Return if requests may be sent.

        Raises:
            WebhookDisabled: the webhook is disabled.
            ReplayRefused: the URL is not allowed.
            ReplayPostponed: the webhook is not verified yet.
        """
        self._check_status()
        try:
            self._guard.check_url(self.url)
        except UrlRefused as refusal:
            raise ReplayRefused(f"URL not allowed: {refusal}") from refusal

    def _check_status(self) -> None:
        webhook = self.webhook
        if not self.is_webhook or webhook.status is WebhookStatus.ENABLED:
            return
        reason = f": {webhook.status_reason}" if webhook.status_reason else ""
        if webhook.status is WebhookStatus.DISABLED:
            raise WebhookDisabled(f"the webhook is disabled{reason}")
        raise ReplayPostponed(f"the webhook is not validated yet{reason}")
