"""Client quotas: how much each user and client id may do, and the meters that enforce it."""
