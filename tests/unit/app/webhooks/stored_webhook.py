"""A PENDING webhook for tests."""

from app.domain.model import Validation, Webhook, WebhookStatus
from app.webhooks.signing import new_secret

OLD_SECRET = new_secret()

HTTP_REFUSED = (
    "url scheme is 'http'; allowed is https (http: if the operator sets "
    "REWIND_ALLOW_HTTP_TARGETS=true)"
)


def webhook_at(url: str, validation: Validation, *, old_until_ms: int = 0) -> Webhook:
    """A webhook whose secret replaced `OLD_SECRET`, which signs until `old_until_ms`."""
    return Webhook(
        id="wh_1",
        account_id="acc_default",
        url=url,
        description="",
        validation=validation,
        status=WebhookStatus.PENDING,
        status_reason=None,
        secret=new_secret(),
        previous_secret=OLD_SECRET,
        previous_secret_until_ms=old_until_ms,
        validated_ms=None,
        failing_since_ms=None,
        created_ms=0,
    )
