"""Topics that something is kept of: those of the newest view, and those nobody can read now."""

from collections.abc import Mapping
from types import MappingProxyType

from logbroker.registry.cluster import ClusterView
from logbroker.registry.topic import Topic


class KnownTopics:
    """What each topic was when it was last seen.

    Read again, an unreadable one may turn out to be another topic of the same name; until then
    nothing of it may be thrown away.
    """

    def __init__(self, view: ClusterView) -> None:
        self._topics: Mapping[str, Topic] = view.topics
        self.unreadable: Mapping[str, Topic] = MappingProxyType({})
        """Those that are there still, and which nobody can read."""

    def follow(self, view: ClusterView) -> list[Topic]:
        """Take over a view's topics: those that are gone, also where a new one has the name."""
        before = self._topics
        names = view.unreadable & before.keys()
        self.unreadable = MappingProxyType({name: before[name] for name in names})
        self._topics = {**self.unreadable, **view.topics}
        return [topic for topic in before.values() if not self._is_kept(topic)]

    def _is_kept(self, topic: Topic) -> bool:
        known = self._topics.get(topic.name)
        return known is topic or (known is not None and known.topic_id == topic.topic_id)
