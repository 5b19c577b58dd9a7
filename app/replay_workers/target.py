"""Where the requests of one replay go, and what signs them, as its webhook says it now."""

from app.domain.model import Replay, Webhook, WebhookStatus
from app.replay_workers.errors import ReplayPutOff, ReplayRefused
from app.webhooks.guard import Guard, UrlRefused


class Target:
    """The webhook of a replay, or its `targetUrl` in the webhook's place.

    A long replay sees its webhook change: a secret is rotated, a receiver moves.
    """

    def __init__(self, replay: Replay, webhook: Webhook, guard: Guard) -> None:
        self._own_url = replay.options.target_url
        self._guard = guard
        self.webhook = webhook

    @property
    def url(self) -> str:
        """Where to send to."""
        return self._own_url or self.webhook.url

    @property
    def is_webhook(self) -> bool:
        """Whether requests go to the webhook's own URL."""
        return self._own_url is None

    def secrets(self, now_ms: int) -> tuple[str, ...]:
        """What signs a request of this moment."""
        return self.webhook.secrets_at(now_ms)

    def check(self) -> None:
        """Return when requests may be sent there.

        Raises:
            ReplayRefused: never again: the webhook is disabled, or its URL not allowed.
            ReplayPutOff: not now: nobody has proved yet that the receiver is theirs.
        """
        self._check_status()
        try:
            self._guard.check_url(self.url)
        except UrlRefused as refusal:
            raise ReplayRefused(f"the webhook cannot be sent to: {refusal}") from refusal

    def _check_status(self) -> None:
        webhook = self.webhook
        if not self.is_webhook or webhook.status is WebhookStatus.ENABLED:
            return
        reason = f": {webhook.status_reason}" if webhook.status_reason else ""
        if webhook.status is WebhookStatus.DISABLED:
            raise ReplayRefused(f"the webhook is disabled{reason}")
        raise ReplayPutOff(f"the webhook is not validated yet{reason}")
