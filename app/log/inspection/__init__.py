"""What operators see of the log: brokers, topics, partitions and groups, as of now.

Nothing here reads records. A figure that cannot be told is None, and a `Gap` says why.
"""

from app.log.inspection.figures import (
    Broker,
    Cluster,
    Gap,
    Group,
    GroupDetail,
    GroupPage,
    GroupPartition,
    Member,
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
    "Member",
    "Partition",
    "Retention",
    "Topic",
    "TopicDetail",
    "TopicPage",
]
