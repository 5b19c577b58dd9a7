"""Any schedule of joins, leaves, silences, delays, failed writes and take-overs keeps the promises.

The clients are simple ones: they give up what they own before they join, the leader hands out
ranges, and requests and answers arrive when the schedule says so, or never.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import RegistryUnavailable
from logbroker.groups.group import Group
from logbroker.groups.messages import (
    NO_MEMBER,
    Alive,
    Answer,
    Effects,
    ErrorResponse,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    MemberIdentity,
    Request,
    Store,
    Sync,
    Synced,
    Token,
)
from logbroker.groups.states import GroupState
from logbroker.groups.stored import StoredMembership
from tests.support.property_examples import examples
from tests.unit.logbroker.groups.group_harness import LIMITS, RANGE

CLIENTS = 5
PARTITIONS = 7
SESSION_S = 10.0


@dataclass(eq=False)
class Client:
    """One consumer process; a static one keeps its `instance_id` when it is started again."""

    number: int
    version: int
    instance_id: str | None = None
    is_running: bool = False
    member_id: str = NO_MEMBER
    generation: int = -1
    owned: frozenset[int] | None = None
    """None while it has joined no generation, or not been given its share."""
    to_assign: tuple[str, ...] = ()
    has_joined: bool = False
    awaited: Token | None = None
    sent: deque[Request] = field(default_factory=deque)
    heard: deque[tuple[Token, Answer]] = field(default_factory=deque)

    def start(self) -> None:
        self.stop()
        self.is_running = True

    def stop(self) -> None:
        """Die without a word."""
        self.is_running = False
        self.give_up(NO_MEMBER)
        self.disconnect()

    def disconnect(self) -> None:
        self.sent.clear()
        self.heard.clear()
        self.awaited = None

    def give_up(self, member_id: str) -> None:
        """Own nothing any more, and join next, as `member_id`."""
        self.member_id = member_id
        self.owned = None
        self.has_joined = False

    def next_request(self, token: Token) -> Request:
        identity = MemberIdentity(self.member_id, self.instance_id)
        if self.owned is not None:
            return Heartbeat(token, identity, self.generation)
        if self.has_joined:
            return Sync(token, identity, self.generation, "consumer", "range", self._ranges())
        return Join(
            token=token,
            identity=identity,
            fresh_id=f"{self.instance_id or self.number}/{token}",
            client_id=f"client {self.number}",
            client_host="/127.0.0.1",
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(2 * SESSION_S * 1000),
            protocol_type="consumer",
            protocols=RANGE,
            takes_id_first=self.version >= 4,
            may_skip_assignment=self.version >= 9,
        )

    def _ranges(self) -> dict[str, bytes]:
        members = sorted(self.to_assign)
        return {
            member: bytes(range(PARTITIONS)[index :: len(members)])
            for index, member in enumerate(members)
        }

    def take(self, answer: Answer) -> None:
        match answer:
            case Joined():
                self.member_id = answer.member_id
                self.generation = answer.generation
                leads = answer.leader == answer.member_id and not answer.skips_assignment
                self.to_assign = tuple(each.member_id for each in answer.members) if leads else ()
                self.has_joined = True
            case Synced():
                self.owned = frozenset(answer.assignment)
            case Alive() | Left():
                pass
            case ErrorResponse():
                self._take_refusal(answer)

    def _take_refusal(self, refused: ErrorResponse) -> None:
        match type(refused.error).__name__:
            case "MemberIdRequired":
                self.give_up(refused.member_id)
            case "FencedInstance":
                self.stop()
            case "UnknownMember":
                self.give_up(NO_MEMBER)
            case "RebalanceInProgress" | "IllegalGeneration" | "GroupTooLarge":
                self.give_up(self.member_id)
            case "RegistryUnavailable" if self.owned is None:
                self.give_up(self.member_id)


class World:
    """Clients, the one coordinator at a time, and what is durable."""

    def __init__(self, initial_delay_s: float) -> None:
        self.limits = replace(LIMITS, initial_rebalance_delay_s=initial_delay_s, members_max=50)
        self.now_s = 50.0
        self.clients = [Client(0, 3, "zero"), Client(1, 9, "one"), Client(2, 0), Client(3, 4)]
        self.clients += [Client(number, 5) for number in range(len(self.clients), CLIENTS)]
        self.group = Group(self.limits)
        self.durable: StoredMembership | None = None
        self.writes: deque[Store] = deque()
        self.askers: dict[Token, Client] = {}
        self.answered: set[Token] = set()
        self.owners: dict[tuple[int, int], str] = {}
        self.last_synced = 0
        self._tokens = 0

    def act(self, number: int) -> None:
        """Have a client send its next request, unless it waits for an answer."""
        client = self.clients[number]
        if client.is_running and client.awaited is None:
            self._send(client, client.next_request(self._token(client)))

    def deliver(self, number: int) -> None:
        client = self.clients[number]
        if client.sent:
            self._take(self.group.handle(client.sent.popleft(), self.now_s))

    def hear(self, number: int) -> None:
        client = self.clients[number]
        if client.heard:
            token, answer = client.heard.popleft()
            if token == client.awaited:
                client.awaited = None
            client.take(answer)

    def start(self, number: int) -> None:
        self.clients[number].start()

    def stop(self, number: int) -> None:
        self.clients[number].stop()

    def hang_up(self, number: int) -> None:
        """Close a client's connection: what was on its way is lost, and it asks again."""
        client = self.clients[number]
        token, was_delivered = client.awaited, not client.sent
        client.disconnect()
        if token is not None and was_delivered and token not in self.answered:
            self.askers.pop(token)
            self._take(self.group.drop_waiting_request(token, self.now_s))

    def leave(self, number: int) -> None:
        client = self.clients[number]
        identity = MemberIdentity(client.member_id, client.instance_id)
        if client.is_running and client.member_id != NO_MEMBER:
            client.stop()
            token = self._token(client)
            self._take(self.group.handle(Leave(token, (identity,)), self.now_s))

    def wait(self, tenths: int) -> None:
        end_s = self.now_s + tenths / 10
        while self.group.next_check_s <= end_s:
            self.now_s = max(self.now_s, self.group.next_check_s)
            self._take(self.group.expire_members(self.now_s))
        self.now_s = end_s

    def store(self, outcome: int) -> None:
        """End the oldest write: 0 is made, 1 fails, 2 is made and seems to have failed."""
        if self.writes:
            write = self.writes.popleft()
            if outcome != 1:
                self.durable = write.membership
            failure = RegistryUnavailable("no answer") if outcome else None
            self._take(self.group.complete_write(write.number, failure, self.now_s))

    def take_over(self, made: int) -> None:
        """Continue on another coordinator after `made` of the pending writes."""
        for write in list(self.writes)[:made]:
            self.durable = write.membership
        self.writes.clear()
        for client in self.clients:
            self.askers.pop(client.awaited, None)
            client.disconnect()
        self.group = Group(self.limits)
        if self.durable is not None:
            self.group = Group.restored(self.limits, self.durable, self.now_s)

    def exchange(self, number: int) -> None:
        """A request and its answer without delay, if there is one."""
        self.act(number)
        self.deliver(number)
        self.hear(number)

    def go_well(self, rounds: int) -> None:
        """Deliver and store everything for some seconds, without starts or stops of members."""
        for _ in range(rounds):
            for number in range(CLIENTS):
                self.exchange(number)
                self.store(0)
            self.wait(10)

    def _token(self, client: Client) -> Token:
        self._tokens += 1
        self.askers[self._tokens] = client
        return self._tokens

    def _send(self, client: Client, request: Request) -> None:
        client.awaited = request.token
        client.sent.append(request)

    def _take(self, effects: Effects) -> None:
        self.writes += effects.stores
        for token, answer in effects.answers:
            assert token not in self.answered
            self.answered.add(token)
            if isinstance(answer, Synced):
                self._check(answer, self.askers[token])
            client = self.askers.get(token)
            if client is not None and client.awaited == token:
                client.heard.append((token, answer))

    def _check(self, answer: Synced, client: Client) -> None:
        generation = self.group.generation
        assert generation >= self.last_synced, "a generation went back"
        self.last_synced = generation
        assert self.durable is not None
        assert self.durable.generation == generation, "answered before it was stored"
        for partition in answer.assignment:
            owner = client.instance_id or f"client {client.number}"
            known = self.owners.setdefault((generation, partition), owner)
            assert known == owner, f"{partition} has two owners in generation {generation}"


def actions() -> st.SearchStrategy[tuple[Callable[..., None], int]]:
    def some(
        action: Callable[..., None], highest: int
    ) -> st.SearchStrategy[tuple[Callable[..., None], int]]:
        return st.tuples(st.just(action), st.integers(0, highest))

    client = CLIENTS - 1
    return st.one_of(
        # A third of all goes well, or no generation would ever be complete.
        some(World.go_well, 4),
        some(World.go_well, 8),
        some(World.exchange, client),
        some(World.exchange, client),
        some(World.start, client),
        some(World.start, client),
        some(World.act, client),
        some(World.deliver, client),
        some(World.hear, client),
        some(World.stop, client),
        some(World.leave, client),
        some(World.hang_up, client),
        some(World.wait, 50),
        some(World.store, 2),
        some(World.take_over, 3),
    )


@examples(200)
@given(st.lists(actions(), min_size=20, max_size=80), st.sampled_from([0.0, 3.0]))
def test_every_schedule_ends_with_one_owner_for_each_partition(
    schedule: list[tuple[Callable[..., None], int]], initial_delay_s: float
) -> None:
    world = World(initial_delay_s)
    for action, number in schedule:
        action(world, number)
    world.go_well(60)
    running = [client for client in world.clients if client.is_running]
    assert all(client.awaited is None for client in running), "a request was never answered"
    unanswered = [token for token in world.askers if token not in world.answered]
    assert all(world.askers[token].awaited != token for token in unanswered)
    owned = sorted(partition for client in running for partition in client.owned or ())
    assert owned == (list(range(PARTITIONS)) if running else [])
    assert world.group.state is (GroupState.STABLE if running else GroupState.EMPTY)
    assert {client.generation for client in running} <= {world.group.generation}
