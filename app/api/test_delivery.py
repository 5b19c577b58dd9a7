"""The route that sends a test to a webhook's receiver and says what that answered."""

from dataclasses import replace

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from app.api.access import CallerDependency
from app.api.doors import Doors, DoorsDependency
from app.api.models.webhook_statistics import TrialDocument
from app.api.openapi import refusals
from app.api.problems import NOT_FOUND
from app.domain.accounts import ApiKey
from app.webhooks.endpoint_test import EndpointTest

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


async def deliver_test(doors: Doors, caller: ApiKey, webhook_id: str) -> EndpointTest:
    """Send a test to the receiver of a webhook now, whatever its status: what came of it.

    What a receiver says is shown to a developer only once it has proved to be theirs: before, it
    may be one that they must not read.

    Raises:
        Problem: the caller has as many receivers asked as one may have; see `Proofs.place`.
        WebhookNotFound: no such webhook, or it is another account's.
    """
    with doors.proofs.place(caller):
        webhook = await run_in_threadpool(doors.store.webhook, webhook_id, of_account=caller.sees)
        trial = await doors.proofs.try_out(webhook)
    is_proved = webhook.validated_ms is not None
    return trial if is_proved or caller.sees is None else replace(trial, response=None)


@router.post("/{webhook_id}/test", operation_id="testWebhook", responses=refusals(NOT_FOUND))
async def test_webhook(
    webhook_id: str, doors: DoorsDependency, caller: CallerDependency
) -> TrialDocument:
    """Send one signed event of the type `rewind.test` to a webhook now, whatever its status.

    It is tried once, is in no log, and changes nothing; the answer says what the receiver answered.
    """
    return TrialDocument.of(await deliver_test(doors, caller, webhook_id))
