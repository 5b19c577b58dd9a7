"""Why a worker stops working on a replay before its end."""


class LeaseLost(Exception):
    """The replay is not this worker's any more: taken over, cancelled or finished."""


class ReplayRefused(Exception):
    """The replay cannot be finished by anybody; the message is for the one who asked for it."""


class WorkerStopping(Exception):
    """The process is to end; the replay goes back to be claimed by another."""
