"""Why a worker stops a replay before its end."""


class LeaseLost(Exception):
    """The replay was paused, cancelled or taken over by another worker."""


class ReplayRefused(Exception):
    """The replay cannot be finished by any worker; the message is shown to its owner."""


class ReceiverGone(ReplayRefused):
    """The receiver answered 410 Gone, or failed for so long that its webhook is disabled."""


class WebhookDisabled(ReplayRefused):
    """Nothing may be sent to the webhook until it is enabled again."""


class ReplayPostponed(Exception):
    """The replay can continue later; the message says what it waits for."""


class ReceiverFailing(ReplayPostponed):
    """The receiver of a recovery fails again; the message says how."""


class TurnEnded(Exception):
    """The replay gives way to one of another account, or to an older one."""


class WorkerStopping(Exception):
    """The process stops; another worker can claim the replay."""
