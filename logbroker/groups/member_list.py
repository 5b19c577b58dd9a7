"""The members of a consumer group, their leader and their shared protocols."""

from collections import Counter
from collections.abc import Iterator

from logbroker.errors import FencedInstance, RequestRefused, UnknownMember
from logbroker.groups.member import Member
from logbroker.groups.messages import MemberIdentity, Protocols, Token


class MemberList:
    """Members in the order of joining; `pending` ids were returned but have not joined yet."""

    def __init__(self) -> None:
        self.pending: dict[str, float] = {}
        """When each id expires."""
        self.protocol_type = ""
        self.leader: str | None = None
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    @property
    def all_have_joined(self) -> bool:
        """Whether all members are ready for a new generation."""
        return not self.pending and all(each.join_token is not None for each in self)

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest time that any member may take to rejoin."""
        return max((each.rebalance_timeout_ms / 1000 for each in self), default=0.0)

    def add(self, member: Member) -> None:
        """Add a member."""
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new member id."""
        assert member.instance_id is not None
        if self.leader == member.member_id:
            self.leader = member_id
        # It keeps its position, so that protocol and leader are chosen as before.
        self._members = {
            member_id if each is member else key: each for key, each in self._members.items()
        }
        member.member_id = member_id
        self._instances[member.instance_id] = member_id

    def find(self, member_id: str) -> Member | None:
        """Return the member with this id."""
        return self._members.get(member_id)

    def find_static(self, instance_id: str | None) -> Member | None:
        """Return the member with this instance id."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def find_waiting(self, token: Token) -> Member | None:
        """Return the member whose request waits under `token`."""
        return next((each for each in self if token in (each.join_token, each.sync_token)), None)

    def check_identity(self, identity: MemberIdentity) -> RequestRefused | None:
        """Return why `identity` is not a member; None if it is."""
        if identity.instance_id is not None:
            holder = self.find_static(identity.instance_id)
            if holder is None:
                return UnknownMember(f"no member has the instance id {identity.instance_id!r}")
            if holder.member_id != identity.member_id:
                return FencedInstance(f"instance id {identity.instance_id!r} has another member")
        if identity.member_id not in self._members:
            return UnknownMember(f"unknown member {identity.member_id!r}")
        return None

    def accepts(self, protocol_type: str, protocols: Protocols, member: Member | None) -> bool:
        """Return whether all members would still share a protocol if `member` had these."""
        others = [each for each in self if each is not member]
        if not protocol_type or not protocols:
            return False
        if not others:
            return True
        if protocol_type != self.protocol_type:
            return False
        return not _shared(others).isdisjoint(name for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Return the shared protocol that most members prefer; requires a member."""
        shared = _shared(self)
        votes = Counter(
            next(name for name, _ in member.protocols if name in shared) for member in self
        )
        # The first of equals: `Counter` keeps insertion order.
        return votes.most_common(1)[0][0]

    def elect_leader(self) -> Member | None:
        """Return the leader if it has rejoined, or else the first member that has."""
        joined = [each for each in self if each.join_token is not None]
        chosen = next((each for each in joined if each.member_id == self.leader), None)
        if chosen is None and joined:
            chosen = joined[0]
        self.leader = None if chosen is None else chosen.member_id
        return chosen


def _shared(members: "MemberList | list[Member]") -> set[str]:
    return set.intersection(*({name for name, _ in each.protocols} for each in members))
