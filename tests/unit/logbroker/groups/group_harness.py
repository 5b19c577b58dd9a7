"""A group whose clock, store and requests are controlled by the test."""

from collections.abc import Mapping
from itertools import count
from typing import Any

from logbroker.errors import RequestRefused
from logbroker.groups.group import Group
from logbroker.groups.messages import (
    Alive,
    Answer,
    Commit,
    Effects,
    ErrorResponse,
    GroupLimits,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Left,
    MemberIdentity,
    Store,
    Sync,
    Synced,
    Token,
)
from logbroker.groups.stored import StoredMember, StoredMembership

LIMITS = GroupLimits(
    initial_rebalance_delay_s=0.0,
    session_timeout_ms_min=1_000,
    session_timeout_ms_max=60_000,
    members_max=4,
)
SESSION_S, REBALANCE_S = 10.0, 30.0
RANGE = (("range", b"range subscription"),)


class GroupHarness:
    """Sends requests to one group, collects the responses, and stores the state on request."""

    def __init__(self, limits: GroupLimits = LIMITS, now_s: float = 1_000.0) -> None:
        self.now_s = now_s
        self.group = Group(limits)
        self.answers: dict[Token, Answer] = {}
        self.unwritten: list[Store] = []
        self.durable: StoredMembership | None = None
        self.members: list[str] = []
        self._limits = limits
        self._numbers = count(1)

    def later(self, seconds: float) -> None:
        """Advance the clock, and expire members whenever the group requires it."""
        end_s = self.now_s + seconds
        while self.group.next_check_s <= end_s:
            self.now_s = max(self.now_s, self.group.next_check_s)
            self._take(self.group.expire_members(self.now_s))
        self.now_s = end_s

    def join(
        self, member_id: str = "", protocols: Any = RANGE, version: int = 3, **fields: Any
    ) -> int:
        """Ask to join, by default as clients did before KIP-394; the token."""
        token = next(self._numbers)
        join = Join(
            token=token,
            identity=MemberIdentity(member_id, fields.pop("instance_id", None)),
            fresh_id=f"member-{token}",
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=fields.pop("session_timeout_ms", int(SESSION_S * 1000)),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", int(REBALANCE_S * 1000)),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=tuple(protocols),
            takes_id_first=version >= 4,
            may_skip_assignment=version >= 9,
        )
        assert not fields, fields
        self._take(self.group.handle(join, self.now_s))
        return token

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        instance_id: str | None = None,
        protocol: str | None = None,
    ) -> int:
        """Ask for the assignment, and make it, if there is one; the token."""
        token = next(self._numbers)
        known = self.group.generation if generation is None else generation
        identity = MemberIdentity(member_id, instance_id)
        sync = Sync(token, identity, known, None, protocol, assignments or {})
        self._take(self.group.handle(sync, self.now_s))
        return token

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> str:
        """What a heartbeat gets: "ok", or the name of the error."""
        token = next(self._numbers)
        known = self.group.generation if generation is None else generation
        identity = MemberIdentity(member_id, instance_id)
        self._take(self.group.handle(Heartbeat(token, identity, known), self.now_s))
        answer = self.answers[token]
        return "ok" if isinstance(answer, Alive) else self.error_name(token)

    def leave(self, *identities: MemberIdentity | str) -> list[str]:
        """What each gets for leaving: "ok", or the name of the error."""
        token = next(self._numbers)
        who = tuple(
            each if isinstance(each, MemberIdentity) else MemberIdentity(each)
            for each in identities
        )
        self._take(self.group.handle(Leave(token, who), self.now_s))
        answer = self.answers[token]
        assert isinstance(answer, Left)
        return ["ok" if each is None else type(each).__name__ for each in answer.refusals]

    def abandon(self, token: Token) -> None:
        """Close the connection on which `token` waits."""
        self._take(self.group.drop_waiting_request(token, self.now_s))

    def retire(self, reason: RequestRefused) -> None:
        self._take(self.group.retire(reason))

    def store(self, failure: RequestRefused | None = None) -> None:
        """Let the oldest write become durable, or fail without being made."""
        write = self.unwritten.pop(0)
        if failure is None:
            self.durable = write.membership
        self._take(self.group.complete_write(write.number, failure, self.now_s))

    def take_over(self) -> None:
        """Continue on another coordinator with the durable state, without pending responses."""
        self.unwritten.clear()
        self.group = Group(self._limits)
        if self.durable is not None:
            self.group = Group.restored(self._limits, self.durable, self.now_s)

    def joined(self, token: Token) -> Joined:
        answer = self.answers[token]
        assert isinstance(answer, Joined), answer
        return answer

    def assignment(self, token: Token) -> bytes:
        answer = self.answers[token]
        assert isinstance(answer, Synced), answer
        return answer.assignment

    def error_name(self, token: Token) -> str:
        """The name of the error that a request was answered with."""
        answer = self.answers[token]
        assert isinstance(answer, ErrorResponse), answer
        return type(answer.error).__name__

    def returned_id(self, token: Token) -> str:
        """The member id in an error response."""
        answer = self.answers[token]
        assert isinstance(answer, ErrorResponse), answer
        return answer.member_id

    def commit(self, commit: Commit) -> str | None:
        """The name of the error with which a commit of offsets would be rejected."""
        refusal = self.group.check_commit(commit, self.now_s)
        return None if refusal is None else type(refusal).__name__

    def is_waiting(self, token: Token) -> bool:
        return token not in self.answers

    def stable(self, count_: int = 2, **fields: Any) -> list[str]:
        """A group of so many members, each with its own name as assignment; their ids."""
        tokens = [self.join(**fields)]
        members = [self.joined(tokens[0]).member_id]
        tokens += [self.join(**fields) for _ in range(count_ - 1)]
        if count_ > 1:
            tokens[0] = self.join(members[0], **fields)
            members = [self.joined(token).member_id for token in tokens]
        for member_id in members[1:]:
            self.sync(member_id)
        self.sync(members[0], assignments={each: each.encode() for each in members})
        while self.unwritten:
            self.store()
        self.members = members
        return members

    @property
    def durable_members(self) -> tuple[StoredMember, ...]:
        assert self.durable is not None
        return self.durable.members

    def _take(self, effects: Effects) -> None:
        for token, answer in effects.answers:
            assert token not in self.answers, f"{token} was answered with {self.answers[token]}"
            self.answers[token] = answer
        self.unwritten += effects.stores
