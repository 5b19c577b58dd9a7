"""Consumer groups by Kafka's protocol: who is a member, who reads what. No I/O, no clock."""
