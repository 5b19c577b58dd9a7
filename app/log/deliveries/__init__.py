"""Deliveries, read from the log: pages of those of some webhooks, and one with its attempts."""

from app.log.deliveries.delivery import DeliveryDetail, DeliveryPage, DeliverySummary
from app.log.deliveries.merging import WebhookGroup, merge_pages, parse_groups
from app.log.deliveries.query import LIMIT_MAX, DeliveryQuery
from app.log.deliveries.reader import DeliveryReader

__all__ = [
    "LIMIT_MAX",
    "DeliveryDetail",
    "DeliveryPage",
    "DeliveryQuery",
    "DeliveryReader",
    "DeliverySummary",
    "WebhookGroup",
    "merge_pages",
    "parse_groups",
]
