"""Which options a webhook may have: limits that depend on settings, and allowed addresses."""

from app.config import Settings
from app.domain.endpoint_options import (
    AUTHORIZATION,
    NO_OPTIONS,
    ClientCredentials,
    EndpointOptions,
    HeaderNotAllowed,
    Ordering,
    check_headers,
)
from app.domain.retry import RETRY_AFTER_S_MAX, exceeds_schedule, longest_retries_s
from app.domain.scheduled_retries import TOTAL_S_MAX, split_schedule
from app.services.errors import FieldError, InvalidRequest
from app.services.services import Services
from app.webhooks.guard import UrlRefused


def check_options(
    services: Services, options: EndpointOptions, stored: EndpointOptions = NO_OPTIONS
) -> EndpointOptions:
    """The options, if a webhook with the options `stored` may have them.

    Values that it has already are kept, even if the settings have become stricter.

    Raises:
        InvalidRequest: a header or a limit is not allowed.
        UrlRefused: tokens must not be requested at this URL.
    """
    settings, errors = services.settings, list[FieldError]()
    try:
        check_headers(options.headers)
    except HeaderNotAllowed as error:
        # Without its value, which may be a secret.
        errors.append(FieldError("headers", None, f"allowed are {error}"))
    if options.authentication is not None and AUTHORIZATION in options.headers:
        allowed = f"no {AUTHORIZATION} among `headers`, which `authentication` sets"
        errors.append(FieldError("authentication", None, allowed))
    timeout_s, in_flight = options.timeout_s, options.max_in_flight
    if timeout_s not in (None, stored.timeout_s) and timeout_s > settings.delivery_timeout_s:
        allowed = f"1 to {settings.delivery_timeout_s:g}, the operator's limit"
        errors.append(FieldError("timeoutSeconds", timeout_s, allowed))
    if in_flight not in (None, stored.max_in_flight) and in_flight > settings.live_in_flight:
        allowed = f"1 to {settings.live_in_flight}, the operator's limit"
        errors.append(FieldError("maxInFlight", in_flight, allowed))
    schedule_s = options.retry_schedule_s
    if schedule_s is not None and schedule_s != stored.retry_schedule_s:
        errors += _schedule_errors(settings, options)
    if errors:
        raise InvalidRequest(fields=errors)
    authentication = options.authentication
    if isinstance(authentication, ClientCredentials) and authentication != stored.authentication:
        try:
            services.guard.check_url(authentication.token_url)
        except UrlRefused as error:
            field = error.field.replace("url", "authentication.tokenUrl", 1)
            raise UrlRefused(field, error.value, error.allowed) from None
    return options


def _schedule_errors(settings: Settings, options: EndpointOptions) -> list[FieldError]:
    pauses_s = list(options.retry_schedule_s or ())
    live_s = settings.retry_schedule.live_s
    if sum(pauses_s) > TOTAL_S_MAX:
        allowed = f"pauses of together up to {TOTAL_S_MAX} s"
        return [FieldError("retrySchedule", pauses_s, allowed)]
    if live_s and not split_schedule(pauses_s, live_s).live_s:
        # Without a live retry, one failure would begin a recovery.
        allowed = f"1 to {longest_retries_s(live_s):g}, the operator's limit of the first pause"
        return [FieldError("retrySchedule[0]", pauses_s[0], allowed)]
    if options.ordering is Ordering.STRICT and exceeds_schedule(pauses_s, live_s):
        allowed = (
            f"in strict order up to {len(live_s)} pauses of together "
            f"{longest_retries_s(live_s):g} s, where each counts {RETRY_AFTER_S_MAX:g} s or more, "
            "the operator's limit"
        )
        return [FieldError("retrySchedule", pauses_s, allowed)]
    return []
