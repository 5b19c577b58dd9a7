"""The messages of a topic, a page at a time, for operators."""

from app.log.browser.browser import LogBrowser
from app.log.browser.content import Content
from app.log.browser.message import Header, Message, MessagePage
from app.log.browser.query import MESSAGES_MAX, BrowseQuery, MessageOrder

__all__ = [
    "MESSAGES_MAX",
    "BrowseQuery",
    "Content",
    "Header",
    "LogBrowser",
    "Message",
    "MessageOrder",
    "MessagePage",
]
