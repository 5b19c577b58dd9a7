"""Why a worker stops working on a replay before its end."""


class LeaseLost(Exception):
    """The replay is not this worker's any more: paused, cancelled or taken over."""


class ReplayRefused(Exception):
    """The replay cannot be finished by anybody; the message is for the one who asked for it."""


class ReceiverGone(ReplayRefused):
    """The receiver answered that it wants nothing sent any more."""


class ReplayPutOff(Exception):
    """The replay can go on later, not now; the message says what it waits for."""


class WorkerStopping(Exception):
    """The process is to end; the replay goes back to be claimed by another."""
