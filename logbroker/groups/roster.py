"""Who is in a consumer group, who leads it, and which protocol all of them know."""

from collections import Counter
from collections.abc import Iterator

from logbroker.errors import FencedInstance, RequestRefused, UnknownMember
from logbroker.groups.exchanges import MemberIdentity, Protocols, Token
from logbroker.groups.member import Member


class Roster:
    """Members in the order in which they came; `pending` ids are given out, not joined with yet."""

    def __init__(self) -> None:
        self.pending: dict[str, float] = {}
        """When each id is given up."""
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
        """Whether nobody is missing for a new generation."""
        return not self.pending and all(each.join_token is not None for each in self)

    @property
    def rebalance_timeout_s(self) -> float:
        """The longest that any member may take to join again."""
        return max((each.rebalance_timeout_ms / 1000 for each in self), default=0.0)

    def add(self, member: Member) -> None:
        """Take in a new member."""
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go."""
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member's place, and what goes with it, to a new member id."""
        assert member.instance_id is not None
        if self.leader == member.member_id:
            self.leader = member_id
        # In its old place, so that protocols and leaders are chosen as before.
        self._members = {
            member_id if each is member else key: each for key, each in self._members.items()
        }
        member.member_id = member_id
        self._instances[member.instance_id] = member_id

    def find(self, member_id: str) -> Member | None:
        """The member of this id."""
        return self._members.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id now."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def waiting(self, token: Token) -> Member | None:
        """The member whose request waits under `token`."""
        return next((each for each in self if token in (each.join_token, each.sync_token)), None)

    def refusal(self, identity: MemberIdentity) -> RequestRefused | None:
        """Why one who says to be `identity` is no member; none where it is one."""
        if identity.instance_id is not None:
            holder = self.static(identity.instance_id)
            if holder is None:
                return UnknownMember(f"no member has the instance id {identity.instance_id!r}")
            if holder.member_id != identity.member_id:
                return FencedInstance(f"{identity.instance_id!r} is another member's now")
        if identity.member_id not in self._members:
            return UnknownMember(f"there is no member {identity.member_id!r}")
        return None

    def accepts(self, protocol_type: str, protocols: Protocols, member: Member | None) -> bool:
        """Whether all would still share a protocol if `member`, or a new one, had these."""
        others = [each for each in self if each is not member]
        if not protocol_type or not protocols:
            return False
        if not others:
            return True
        if protocol_type != self.protocol_type:
            return False
        return not _shared(others).isdisjoint(name for name, _ in protocols)

    def choose_protocol(self) -> str:
        """The one of the shared protocols that most members prefer; there is a member."""
        shared = _shared(self)
        votes = Counter(
            next(name for name, _ in member.protocols if name in shared) for member in self
        )
        # The first of equals, as `Counter` keeps the order in which they were met.
        return votes.most_common(1)[0][0]

    def elect_leader(self) -> Member | None:
        """The leader, if it has joined again; else the first member that has."""
        joined = [each for each in self if each.join_token is not None]
        chosen = next((each for each in joined if each.member_id == self.leader), None)
        if chosen is None and joined:
            chosen = joined[0]
        self.leader = None if chosen is None else chosen.member_id
        return chosen


def _shared(members: "Roster | list[Member]") -> set[str]:
    return set.intersection(*({name for name, _ in each.protocols} for each in members))
