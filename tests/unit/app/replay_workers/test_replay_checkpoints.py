"""The age of a stored checkpoint stops deliveries."""

import asyncio

from app.replay_workers.checkpoints import CheckpointAge


def test_deliveries_wait_until_a_newer_checkpoint_is_stored() -> None:
    async def scenario() -> None:
        now_s = 10.0
        age = CheckpointAge(4.0, lambda: now_s)
        now_s = 14.0
        assert age.is_within_limit()
        await asyncio.wait_for(age.wait_until_within_limit(), 10)
        now_s = 14.5
        assert not age.is_within_limit()
        waiting = asyncio.create_task(age.wait_until_within_limit())
        # One that was begun too long ago does not help.
        for as_of_s, is_enough in ((10.4, False), (11.0, True)):
            age.reset(as_of_s)
            for _ in range(3):
                await asyncio.sleep(0)
            assert waiting.done() is is_enough

    asyncio.run(scenario())
