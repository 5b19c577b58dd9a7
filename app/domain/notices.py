"""Notifications of ended replays to their webhooks: id, body and retries.

Source: Standard Webhooks 1.0.0, "Payload structure"; the other form is `replay_job_status` of
Twitter's Account Activity Replay API.
"""

import json
from typing import Any, Final

from app.domain.model import Replay
from app.domain.options import NoticeStyle
from app.domain.replay_results import result_of
from app.domain.states import ReplayState
from app.domain.windows import format_time

DELAYS_S: Final = (3.0, 27.0, 242.0)
"""The waits after failed attempts; Twitter retries live events like this."""


def pause_s(attempt: int) -> float | None:
    """The wait after failed attempt number `attempt`, from 1; None after the last attempt."""
    return DELAYS_S[attempt - 1] if attempt <= len(DELAYS_S) else None


def notice_id(replay: Replay) -> str:
    """The `webhook-id`, the same in all attempts to notify of this end.

    A FAILED replay can be resumed and fail again, under a later claim; other states are final.
    """
    state_id = f"{replay.id}-{replay.state.lower()}"
    return f"{state_id}-{replay.lease_epoch}" if replay.state is ReplayState.FAILED else state_id


def notice_body(replay: Replay) -> bytes:
    """The body of the notification, in the format of the replay's `notice`."""
    is_twitter = replay.notice is NoticeStyle.TWITTER
    document = _twitter(replay) if is_twitter else _standard(replay)
    return json.dumps(document, separators=(",", ":")).encode()


def _standard(replay: Replay) -> dict[str, Any]:
    return {
        "type": f"replay.{replay.state.lower()}",
        "timestamp": format_time(replay.finished_ms or 0),
        "data": replay_data(replay),
    }


def replay_data(replay: Replay) -> dict[str, Any]:
    """What a notification says of a replay that has ended."""
    counts = replay.counts
    return {
        "replayId": replay.id,
        "webhookId": replay.webhook_id,
        "from": format_time(replay.window.from_ms),
        "to": format_time(replay.window.to_ms),
        "state": str(replay.state),
        "result": str(result_of(replay)),
        "counts": {
            "delivered": counts.delivered,
            "duplicates": counts.duplicates,
            "failed": counts.failed,
        },
        "error": replay.error,
    }


def _twitter(replay: Replay) -> dict[str, Any]:
    is_complete = replay.state is ReplayState.COMPLETED and not replay.counts.failed
    return {
        "replay_job_status": {
            "webhook_id": replay.webhook_id,
            "job_state": "Complete" if is_complete else "Incomplete",
            "job_state_description": (
                "Job completed successfully"
                if is_complete
                else "Job failed to deliver all events, please retry your replay job"
            ),
            "job_id": replay.id,
        }
    }
