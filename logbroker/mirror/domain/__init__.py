"""The pure rules of the mirror: which records and topics are copied, and how far partitions are."""
