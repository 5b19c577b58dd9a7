"""The messages of a topic, a page at a time, as an operator looks through them."""

from app.log.browser.browser import LogBrowser
from app.log.browser.content import Content
from app.log.browser.message import Header, Message, MessagePage
from app.log.browser.question import MESSAGES_MAX, BrowseQuestion, Order

__all__ = [
    "MESSAGES_MAX",
    "BrowseQuestion",
    "Content",
    "Header",
    "LogBrowser",
    "Message",
    "MessagePage",
    "Order",
]
