"""The deliveries of a webhook, read from the log: pages of them, and one with its attempts."""

from app.log.deliveries.delivery import DeliveryDetail, DeliveryPage, DeliverySummary
from app.log.deliveries.query import LIMIT_MAX, DeliveryQuery
from app.log.deliveries.reader import DeliveryReader

__all__ = [
    "LIMIT_MAX",
    "DeliveryDetail",
    "DeliveryPage",
    "DeliveryQuery",
    "DeliveryReader",
    "DeliverySummary",
]
