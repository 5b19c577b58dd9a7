"""The current state of the log for operators: brokers, topics, partitions and groups.

Nothing here reads records. An unknown figure is None, and a `Gap` says why.
"""

from app.log.inspection.figures import (
    Broker,
    Cluster,
    Gap,
    Group,
    GroupDetail,
    GroupPage,
    GroupPartition,
    Partition,
    Retention,
    Topic,
    TopicDetail,
    TopicPage,
)
from app.log.inspection.inspector import LogInspector

__all__ = [
    "Broker",
    "Cluster",
    "Gap",
    "Group",
    "GroupDetail",
    "GroupPage",
    "GroupPartition",
    "LogInspector",
    "Partition",
    "Retention",
    "Topic",
    "TopicDetail",
    "TopicPage",
]
