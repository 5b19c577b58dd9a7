"""Use case of event look-ups: an event by its id, with its deliveries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.deliveries import DeliveryPlace
from app.domain.event_index import EventPartition, EventPlace, unindexed_ranges
from app.domain.model import Webhook
from app.log.deliveries import DeliveryDetail
from app.log.deliveries.delivery import headers_of, text_of, texts_of
from app.log.errors import NotInLog
from app.log.event import ACCOUNT_HEADER, header_text, members_of, printable_text
from app.log.event_records import EventRecord
from app.log.inspection.deadline import Deadline
from app.services.deliveries import read_delivery
from app.services.errors import EventIndexBehind, UnknownEvent
from app.services.services import Services
from app.store.errors import WebhookNotFound

DELIVERIES_MAX: Final = 25
"""Deliveries of an event that are returned; the outcome of each takes some milliseconds."""

UNINDEXED_MAX: Final = 20_000
"""The latest records without an entry in the index that a look-up reads."""

_PLACES_MAX: Final = 5_000
"""Records that may have the event's id: the latest ones."""

_READS_MAX: Final = 50
_TIME_S_MAX: Final = 4.0
_BYTES_MAX: Final = 16 * 2**20

_GAP_MAX: Final = 64
"""Records of an event with fewer others between them are read together."""


class FoundDelivery(NamedTuple):
    """A delivery of an event, and its webhook."""

    detail: DeliveryDetail
    webhook: Webhook


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event as it was published, with the deliveries that the caller may see, by webhook.

    `has_more` says that there are further deliveries. `account_id` is the only account that may
    receive the event, for operators. `time_ms` is the event time.
    """

    id: str
    type: str
    time_ms: int
    body: bytes
    headers: Sequence[tuple[str, bytes | None]]
    deliveries: tuple[FoundDelivery, ...]
    has_more: bool

    @property
    def account_id(self) -> str | None:
        """The only account whose webhooks may receive it; None if rules and grants decide."""
        return header_text(dict(self.headers).get(ACCOUNT_HEADER)) or None

    def header_texts(self, *, with_internal: bool) -> list[tuple[str, str | None]]:
        """See `DeliveryDetail.header_texts`."""
        return texts_of(self.headers, with_internal=with_internal)


async def get_event(services: Services, caller: ApiKey, event_id: str) -> FoundEvent:
    """An event by its id; a developer sees it if it is addressed to a webhook of the account.

    Raises:
        UnknownEvent: no such event, or the caller may not see it.
        EventIndexBehind: not found, but it may be among records that are not indexed yet.
        RateLimited: the account has too many concurrent look-ups.
        InspectionsBusy, LogUnavailable, StoreUnavailable
    """
    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(_get_event, services, caller.account_filter, event_id)


def _get_event(services: Services, of_account: str | None, event_id: str) -> FoundEvent:
    deadline = Deadline(_TIME_S_MAX)
    with services.event_records.slot():
        search = _Search(services, event_id, deadline)
        records = search.records()
    visible = _visible(services, of_account, records)
    if not visible:
        if search.unread:
            raise EventIndexBehind(search.unread)
        raise UnknownEvent(event_id)
    addressed = [each for each in visible if each.place.partition.is_delivery_log]
    deliveries: list[FoundDelivery] = []
    unread = 0
    for each in addressed:
        if len(deliveries) == DELIVERIES_MAX or deadline.is_over:
            unread += 1
        elif found := _delivery(services, of_account, each):
            deliveries.append(found)
    # Deliveries have the event as receivers get it, such as JSON instead of Avro.
    shown = (addressed or visible)[0].record
    body = shown.value or b""
    event_type = header_text(headers_of(shown).get("event-type"))
    return FoundEvent(
        event_id,
        event_type or printable_text(members_of(body).get("type")),
        shown.timestamp_ms or 0,
        body,
        shown.headers or (),
        tuple(deliveries),
        has_more=unread > 0 or search.unread > 0,
    )


def _visible(
    services: Services, of_account: str | None, records: Iterable[EventRecord]
) -> list[EventRecord]:
    """The records that the caller may see: deliveries by webhook, latest first, then events.

    A developer sees deliveries to existing webhooks of the account.
    """
    found = sorted(records, key=_order)
    if of_account is None:
        return found
    addressed = [each for each in found if each.place.partition.is_delivery_log]
    owners = services.store.find_webhook_accounts({_webhook_id(each) for each in addressed})
    return [each for each in addressed if owners.get(_webhook_id(each)) == of_account]


def _order(each: EventRecord) -> tuple[bool, str, int]:
    is_delivery = each.place.partition.is_delivery_log
    return not is_delivery, _webhook_id(each) if is_delivery else "", -each.place.offset


def _webhook_id(each: EventRecord) -> str:
    return text_of(each.record.key)


def _delivery(
    services: Services, of_account: str | None, each: EventRecord
) -> FoundDelivery | None:
    """The delivery of a record; None if its webhook or the record has been deleted meanwhile."""
    place = DeliveryPlace(services.settings.origin, each.record.partition, each.record.offset)
    try:
        return FoundDelivery(*read_delivery(services, place, of_account=of_account))
    except (NotInLog, WebhookNotFound):
        return None


class _Search:
    """Finds the records with an event id: those of the index, and those without an entry in it.

    `unread` is how many records without an entry were not read, because there are too many.
    """

    def __init__(self, services: Services, event_id: str, deadline: Deadline) -> None:
        self._services = services
        self._event_id = event_id
        self._deadline = deadline
        self.unread = 0

    def records(self) -> list[EventRecord]:
        """The records; of very many, the latest."""
        event_records, index = self._services.event_records, self._services.event_index
        # Read first: what is indexed meanwhile is found twice.
        positions = index.positions()
        bounds = event_records.bounds(self._deadline)
        places = index.find(self._event_id)[-_PLACES_MAX:]
        ranges = _ranges_of(place for place in places if _is_within(place, bounds))
        found: dict[EventPlace, EventRecord] = {}
        for _ in range(_READS_MAX):
            wanted = {partition: waiting.pop() for partition, waiting in ranges.items() if waiting}
            if not wanted or self._deadline.is_over:
                break
            found |= self._read(wanted)
        self.unread += sum(end - start for left in ranges.values() for start, end in left)
        return list((found | self._read_unindexed(unindexed_ranges(positions, bounds))).values())

    def _read_unindexed(
        self, ranges: Mapping[EventPartition, tuple[int, int]]
    ) -> dict[EventPlace, EventRecord]:
        if not ranges:
            return {}
        share = UNINDEXED_MAX // len(ranges)
        if sum(end - start for start, end in ranges.values()) <= UNINDEXED_MAX:
            share = UNINDEXED_MAX
        latest = {
            partition: (max(start, end - share), end) for partition, (start, end) in ranges.items()
        }
        self.unread += sum(latest[each][0] - start for each, (start, _) in ranges.items())
        return self._read(latest)

    def _read(
        self, ranges: Mapping[EventPartition, tuple[int, int]]
    ) -> dict[EventPlace, EventRecord]:
        read = self._services.event_records.read(ranges, self._deadline, _BYTES_MAX)
        self.unread += sum(ranges[each][1] - result.position for each, result in read.items())
        return {
            each.place: each
            for result in read.values()
            for each in result.records
            if each.event_id == self._event_id
        }


def _is_within(place: EventPlace, bounds: Mapping[EventPartition, tuple[int, int]]) -> bool:
    low, high = bounds.get(place.partition, (0, 0))
    return low <= place.offset < high


def _ranges_of(
    places: Iterable[EventPlace],
) -> dict[EventPartition, list[tuple[int, int]]]:
    """The ranges `[start, end)` of each partition that have these places, the latest last."""
    ranges: dict[EventPartition, list[tuple[int, int]]] = {}
    for partition, offset in sorted(set(places)):
        of_partition = ranges.setdefault(partition, [])
        if of_partition and offset - of_partition[-1][1] < _GAP_MAX:
            of_partition[-1] = (of_partition[-1][0], offset + 1)
        else:
            of_partition.append((offset, offset + 1))
    return ranges
