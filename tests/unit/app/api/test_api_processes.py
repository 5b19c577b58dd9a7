import pytest
from httpx import AsyncClient

from app.domain.processes import ProcessKind
from app.domain.windows import format_time
from app.store import Store

pytestmark = pytest.mark.anyio


async def test_an_operator_lists_processes(client: AsyncClient, store: Store) -> None:
    store.record_process_heartbeat(
        ProcessKind.WORKER, "there:2:f00", "west", 1_000, {"jobs": 3, "jobsMax": 4}
    )
    store.record_process_heartbeat(ProcessKind.API, "here:1", "east", 2_000, {})
    (known,) = (each for each in store.processes() if each.kind is ProcessKind.WORKER)
    answer = await client.get("/processes")
    assert answer.status_code == 200
    api, worker = answer.json()["items"]
    assert (api["kind"], api["name"], api["details"]) == ("api", "here:1", {})
    assert worker.pop("heartbeatAgeMs") >= 0
    assert worker == {
        "kind": "worker",
        "name": "there:2:f00",
        "origin": "west",
        "details": {"jobs": 3, "jobsMax": 4},
        "startedAt": "1970-01-01T00:00:01.000Z",
        "heartbeatAt": format_time(known.heartbeat_ms),
        "isSilent": False,
    }


async def test_a_developer_may_not_list_processes(developers_client: AsyncClient) -> None:
    assert (await developers_client.get("/processes")).status_code == 403
