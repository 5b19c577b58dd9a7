"""The request body of rule tests: an event to compare with the rules of a webhook."""

import json
from typing import Annotated, Any

from pydantic import Field

from app.domain.windows import format_time
from app.http.request_bodies import RequestBody, Time, example
from app.services.sample_events import SampleEvent


class SampleEventRequest(RequestBody):
    """An event as it is published, or as a receiver gets it; it is not published."""

    model_config = example({"type": "follow.created", "data": {"userId": "42"}})

    type: Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]
    data: dict[str, Any]
    id: Annotated[str, Field(min_length=1, max_length=256)] = "evt_sample"
    time_ms: Time | None = Field(None, alias="time", description="Default: now.")
    account_id: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="The account that the event is published for; without it, grants apply.",
    )

    def sample(self, now_ms: int) -> SampleEvent:
        """The event to test, as of `now_ms`."""
        time = format_time(now_ms if self.time_ms is None else self.time_ms)
        content = {"id": self.id, "type": self.type, "time": time, "data": self.data}
        return SampleEvent(self.type, json.dumps(content).encode(), self.account_id)
