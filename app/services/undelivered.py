"""Lists the events that are not delivered, of several webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.deliveries import DeliveryStatus
from app.domain.model import Webhook
from app.log.deliveries import (
    DeliveryQuery,
    DeliverySummary,
    WebhookGroup,
    merge_pages,
    parse_groups,
)
from app.log.deliveries.merging import IS_OVER
from app.log.errors import BrowseRefused
from app.services.authentication import select_account
from app.services.deliveries import (
    DeliverySelection,
    older_deliveries_named,
    window_of,
    with_stored,
)
from app.services.errors import FieldError, InvalidRequest
from app.services.services import Services

WEBHOOKS_MAX: Final = 10
"""Webhooks of a list. Each may be in a partition of its own, which gets its part of the budget."""

OMITTED_MAX: Final = 100
"""Further webhooks that are named."""

STATUSES: Final = (DeliveryStatus.FAILED, DeliveryStatus.PENDING, DeliveryStatus.SKIPPED)

_GROUPS_ALLOWED: Final = "the nextCursor of the previous page"


@dataclass(frozen=True, slots=True)
class UndeliveredPage:
    """Deliveries of `webhooks`, the latest first; see also `DeliveryPage`.

    `omitted_webhook_ids` are up to `OMITTED_MAX` of the `omitted_webhooks` further webhooks that
    have some, which the list leaves out.
    """

    items: tuple[DeliverySummary, ...]
    next_cursor: str | None
    is_partial: bool
    from_ms: int
    skipped: tuple[str, ...]
    webhooks: tuple[Webhook, ...]
    omitted_webhooks: int
    omitted_webhook_ids: tuple[str, ...]

    @property
    def webhook_ids(self) -> tuple[str, ...]:
        """The ids of its webhooks."""
        return tuple(each.id for each in self.webhooks)


async def list_undelivered(
    services: Services,
    caller: ApiKey,
    selection: DeliverySelection,
    *,
    account_id: str | None = None,
    cursor: str | None = None,
    limit: int,
) -> UndeliveredPage:
    """A page of the failed, skipped or pending deliveries of the webhooks that have most of them.

    The database says which webhooks have some, the log has the deliveries. The pages of a list are
    of the webhooks of its first page. Without `account_id` they are of all accounts that the caller
    may see.

    Raises:
        InvalidRequest: the status is not one of `STATUSES`, or the window ends before it begins.
        AccountNotAllowed: a developer named another account.
        RateLimited: the account has too many concurrent look-ups.
        DeliveriesNotRetained: the log no longer has the window.
        The other errors of `DeliveryReader.page`.
    """
    if selection.status not in STATUSES:
        allowed = "failed, pending or skipped; the list of one webhook has all deliveries"
        raise InvalidRequest(fields=[FieldError("status", selection.status, allowed)])
    of_account = select_account(caller, account_id)
    listing = _Listing(services, caller, selection, of_account, limit)
    with services.delivery_slots.slot(caller):
        return await to_thread.run_sync(listing.read, cursor)


class _Listing:
    """Reads a page of a list. Blocks."""

    def __init__(
        self,
        services: Services,
        caller: ApiKey,
        selection: DeliverySelection,
        of_account: str | None,
        limit: int,
    ) -> None:
        assert selection.status is not None
        self._services = services
        self._caller = caller
        self._selection = selection
        self._status = selection.status
        self._window = window_of(selection.from_ms, selection.to_ms)
        self._of_account = of_account
        self._limit = limit

    def read(self, cursor: str | None) -> UndeliveredPage:
        """Return the page at a cursor, or the first."""
        found = self._services.store.undelivered_webhooks(
            self._status,
            self._window,
            WEBHOOKS_MAX + OMITTED_MAX,
            origin=self._services.settings.origin,
            of_account=self._of_account,
        )
        groups = self._grouped(found.ids[:WEBHOOKS_MAX]) if cursor is None else self._parse(cursor)
        existing = self._existing([each for group in groups for each in group.webhook_ids])
        groups = _only_of(groups, existing)
        unread = [each for each in groups if each.cursor != IS_OVER]
        queries = [self._query(each) for each in unread]
        with older_deliveries_named(self._services, self._caller):
            pages = self._services.deliveries.pages(queries)
        merged = merge_pages(unread, pages, self._limit)
        over = [each for each in groups if each.cursor == IS_OVER]
        page = merged._replace(groups=(*merged.groups, *over))
        others = [each for each in found.ids if each not in existing]
        return UndeliveredPage(
            items=page.items,
            next_cursor=page.next_cursor,
            is_partial=any(each.is_partial for each in pages),
            from_ms=max((each.from_ms for each in pages), default=self._window.from_ms),
            skipped=tuple(problem for each in pages for problem in each.skipped),
            webhooks=tuple(existing.values()),
            omitted_webhooks=found.total - (len(found.ids) - len(others)),
            omitted_webhook_ids=tuple(others[:OMITTED_MAX]),
        )

    def _existing(self, webhook_ids: Sequence[str]) -> dict[str, Webhook]:
        """The webhooks of the account: a cursor may name deleted ones, and those of others."""
        found = self._services.store.find_webhooks(webhook_ids)
        return {
            each: found[each]
            for each in webhook_ids
            if each in found and self._of_account in (None, found[each].account_id)
        }

    def _grouped(self, webhook_ids: Sequence[str]) -> tuple[WebhookGroup, ...]:
        """The webhooks by their partitions."""
        by_partition: dict[tuple[int, int], list[str]] = {}
        for each in webhook_ids:
            partitions = self._services.deliveries.partitions_for(each)
            by_partition.setdefault(partitions, []).append(each)
        return tuple(WebhookGroup(tuple(ids)) for ids in by_partition.values())

    def _parse(self, cursor: str) -> tuple[WebhookGroup, ...]:
        groups = parse_groups(cursor)
        partitions_for = self._services.deliveries.partitions_for
        is_valid = sum(len(each.webhook_ids) for each in groups) <= WEBHOOKS_MAX and all(
            len(set(map(partitions_for, each.webhook_ids))) == 1 for each in groups
        )
        if not is_valid:
            raise BrowseRefused("cursor", cursor, _GROUPS_ALLOWED)
        return groups

    def _query(self, group: WebhookGroup) -> DeliveryQuery:
        selection = self._selection
        query = DeliveryQuery(
            group.webhook_ids,
            self._window,
            self._status,
            selection.event_type,
            cursor=group.cursor,
            limit=self._limit,
            may_clip=selection.from_ms is None,
        )
        events, _ = self._services.deliveries.partitions_for(group.webhook_ids[0])
        return with_stored(self._services, query, None if selection.to_ms is None else events)


def _only_of(
    groups: Sequence[WebhookGroup], existing: dict[str, Webhook]
) -> tuple[WebhookGroup, ...]:
    """The groups without webhooks that do not exist."""
    kept = (
        each._replace(webhook_ids=tuple(id_ for id_ in each.webhook_ids if id_ in existing))
        for each in groups
    )
    return tuple(each for each in kept if each.webhook_ids)
