"""Settings of the replay service: read once from `REWIND_*` variables and options, then frozen."""

import socket
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Self

from annotated_types import Ge, Le, MinLen
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.domain.egress_proxy import EgressProxy
from app.domain.mail import MailServer
from app.domain.scheduled_retries import RetrySchedule
from app.setting_checks import (
    check_database,
    check_delays,
    check_egress_proxy,
    check_forwarded_header,
    check_networks,
    check_origin,
    check_pauses,
    check_public_url,
    check_registry,
    check_secret_key,
    check_smtp_from,
    check_smtp_url,
)
from app.variables import KAFKA_PREFIX, PREFIX, variable

HEARTBEATS_PER_LEASE: Final = 3
"""A lease must survive two lost heartbeats."""

OPTIONS_ALONE: Final = frozenset({"REWIND_SECRET"})
"""Variables of one command's option (`rewind listen --secret`), which are not settings."""

DAY_MS: Final = 86_400_000
PORT_MAX: Final = 65_535

Port = Annotated[int, Field(ge=0, le=PORT_MAX)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
ByteCount = Annotated[int, Field(ge=1_024, le=2**30)]
Seconds = Annotated[float, Field(ge=0.001, le=86_400)]
Name = Annotated[str, Field(min_length=1)]


class ConfigurationError(Exception):
    """Settings are unknown, malformed or contradict each other; the message lists all."""


class Settings(BaseModel):
    """Every setting of one process; field `x` is the variable `REWIND_X` and the option `--x`.

    Sizes are in bytes, times in the unit of the name's end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path = Path(".rewind")
    database: Annotated[str, AfterValidator(check_database)] = Field(
        default_factory=lambda data: f"sqlite:///{data['data_dir']}/rewind.db",
        repr=False,  # it may hold a password
    )
    bootstrap_servers: Name = "127.0.0.1:9092"
    kafka_properties: Mapping[str, str] = Field(default={}, repr=False)  # they hold passwords
    """Properties for every Kafka client, such as those of TLS and SASL, by librdkafka's names."""
    secret_key: Annotated[str, AfterValidator(check_secret_key)] = Field(default="", repr=False)
    """The keys that encrypt the secrets of webhooks, comma-separated; the first one encrypts."""
    secret_key_file: str = ""
    """A file with these keys, one per line.

    The default for SQLite is `secret.key` next to the database."""
    host: Name = "127.0.0.1"
    port: Port = 8000
    broker_port: Port = 9092
    brokers: Annotated[int, Field(ge=1, le=64)] = 1
    """The number of embedded brokers; they listen on `broker_port` and the following ports."""
    zookeeper: str = ""
    """The ensemble through which embedded brokers form a cluster; without one, one broker runs.
    The console shows its health."""
    public_url: Annotated[str, AfterValidator(check_public_url)] = ""
    """The URL of the API for browsers, http(s)://HOST[:PORT], if it differs from `host`."""
    console: bool = True
    """Whether the API serves the console for operators, at /console."""
    api_url: Name = "http://127.0.0.1:8000"
    api_key: str = Field(default="", repr=False)
    """The API key of commands; default: the file `operator.key` of the data directory."""

    server: Name = Field(default_factory=socket.gethostname)
    origin: Annotated[str, AfterValidator(check_origin)] = "local"
    """The data centre of this process."""

    partitions: Annotated[int, Field(ge=1, le=10_000)] = 16
    replication_factor: Annotated[int, Field(ge=-1, le=100)] = -1
    """The replication factor of topics that the service creates; -1 is the log's default."""
    history_days: Annotated[int, Field(ge=1, le=365)] = 5
    lateness_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0
    """How long after its event time a record may reach the log and be found by time alone."""

    lease_s: Seconds = 30.0
    heartbeat_s: Seconds = 1.0
    poll_interval_s: Seconds = 1.0
    checkpoint_interval_s: Seconds = 1.0
    worker_metrics_port: Port = 0
    """The port of a worker's metrics on `host`; 0 disables them."""
    jobs_per_worker: Annotated[int, Field(ge=1, le=256)] = 4
    waiting_replays_per_worker: Annotated[int, Field(ge=0, le=256)] = 16
    """How many replays that wait most of their time one worker runs besides."""
    running_replays_per_account: Count = 16
    """How many replays of one account all workers together run at a time."""
    max_in_flight: Annotated[int, Field(ge=1, le=1_024)] = 512
    """The most requests of a replay in flight; with 1, events arrive in order."""
    dedupe_entries: Annotated[int, Field(ge=1, le=100_000_000)] = 500_000
    """Hashes that a running replay keeps, or half as many; each needs about 17 bytes."""

    retry_attempts_max: Annotated[int, Field(ge=1, le=100)] = 6
    retry_base_s: Seconds = 1.0
    retry_cap_s: Seconds = 60.0
    connect_timeout_s: Seconds = 5.0
    # Standard Webhooks advises fifteen to thirty seconds.
    delivery_timeout_s: Seconds = 15.0
    allow_private_targets: bool = False
    allow_http_targets: bool = False
    allowed_networks: Annotated[str, AfterValidator(check_networks)] = ""
    """Networks that webhooks may reach although they are not public: CIDR, comma-separated."""

    egress_proxy: Annotated[str, AfterValidator(check_egress_proxy)] = Field(default="", repr=False)
    """The HTTP proxy of all requests to webhooks, http://[USER:PASSWORD@]HOST:PORT."""

    smtp_url: Annotated[str, AfterValidator(check_smtp_url)] = Field(default="", repr=False)
    """The mail server for notices, smtp[s]://[USER[:PASSWORD]@]HOST:PORT; without it, no mail."""
    smtp_password_file: str = ""
    """A file with the password of the user in `smtp_url`."""
    smtp_from: Annotated[str, AfterValidator(check_smtp_from)] = ""
    """The sender of mails: ADDRESS or NAME <ADDRESS>."""

    live_delays_s: Annotated[str, AfterValidator(check_delays)] = "0,3,27,242"
    """Delays of the attempts of a live delivery, each from the previous attempt."""
    scheduled_retries_s: Annotated[str, AfterValidator(check_pauses)] = (
        "1800,7200,18000,36000,50400,72000,86400"
    )
    """Pauses before the further retries of an event whose live attempts failed; empty for none."""
    live_in_flight: Annotated[int, Field(ge=1, le=1_024)] = 128
    """The most requests of the live path to one webhook in flight."""
    live_queue_max: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """The length of a webhook's delivery queue; further events are skipped."""
    live_metrics_port: Port = 0
    metrics_token_file: str = ""
    """A file with the bearer token with which other machines read the metrics of worker and live
    path. This machine needs none."""
    metrics_open: bool = False
    """Whether other machines need no token."""
    schema_registry: Annotated[str, AfterValidator(check_registry)] = Field(default="", repr=False)
    """The Avro schema registry, http(s)://[USER:PASSWORD@]HOST[:PORT]; without it, events are
    JSON."""
    audit: bool = True
    """Whether events are marked and counted, so that `logbroker audit` can detect losses."""
    audit_window_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """The span of event time over which published events are counted together."""
    replay_retention_days: Annotated[int, Field(ge=0, le=36_500)] = 90
    """How long replays that have ended are kept in the database; 0 keeps them for ever."""
    disable_after_failures: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    disable_after_s: Annotated[float, Field(ge=0, le=31_536_000)] = 86_400.0
    """A webhook is disabled after so many consecutive failures over so long a time."""

    webhooks_per_account: Count = 20
    """How many webhooks the developers of an account may register; operators may register more."""
    developer_requests_per_minute: Count = 600
    operator_requests_per_minute: Count = 60_000
    unauthorized_requests_per_minute: Count = 60
    open_requests_per_minute: Count = 600
    """Requests of one client to paths that need no key."""
    trusted_proxies: Annotated[str, AfterValidator(check_networks)] = ""
    """Networks of the proxies that name their clients in `forwarded_header`: CIDR,
    comma-separated."""
    forwarded_header: Annotated[str, AfterValidator(check_forwarded_header)] = "x-forwarded-for"

    request_bytes_max: ByteCount = 8 * 2**20
    # Below the log's limit of about 1 MB for a batch, so that accepted events can be stored.
    event_bytes_max: Annotated[int, Field(ge=1_024, le=900_000)] = 512 * 1_024
    events_per_request_max: Count = 10_000

    @property
    def proxy(self) -> EgressProxy | None:
        """The parsed `egress_proxy`."""
        return EgressProxy.parse(self.egress_proxy)

    @property
    def mail_server(self) -> MailServer | None:
        """The parsed `smtp_url`."""
        return MailServer.parse(self.smtp_url)

    @property
    def history_ms(self) -> int:
        """How far back a replay may start."""
        return self.history_days * DAY_MS

    @property
    def retention_ms(self) -> int:
        """The retention of deliveries: a day longer than the history of replays."""
        return self.history_ms + DAY_MS

    @property
    def replay_retention_ms(self) -> int | None:
        """How long replays are kept after their end; None keeps them for ever.

        At least as long as their deliveries: statistics of missed events count past replays.
        """
        if not self.replay_retention_days:
            return None
        return max(self.replay_retention_days * DAY_MS, self.retention_ms)

    @property
    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `allowed_networks`."""
        return _networks(self.allowed_networks)

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of `trusted_proxies`."""
        return _networks(self.trusted_proxies)

    @property
    def attempt_delays_s(self) -> tuple[float, ...]:
        """The waits of `live_delays_s`, one for each attempt."""
        return tuple(float(part) for part in self.live_delays_s.split(","))

    @property
    def retry_schedule(self) -> RetrySchedule:
        """The pauses before the retries of an event, of webhooks without their own."""
        pauses_s = self.scheduled_retries_s.split(",") if self.scheduled_retries_s else ()
        return RetrySchedule(self.attempt_delays_s[1:], tuple(float(each) for each in pauses_s))

    @property
    def lateness_ms(self) -> int:
        """`lateness_s` in the unit of record timestamps."""
        return round(self.lateness_s * 1_000)

    @classmethod
    def load(cls, environ: Mapping[str, str], **overrides: object) -> Self:
        """Return the settings of `environ`, overridden by `overrides` that are not None.

        Relations between settings are checked after the single values.

        Raises:
            ConfigurationError: one line for each problem: variable, value, and what is allowed.
        """
        given: dict[str, object] = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX)
            and not name.startswith(KAFKA_PREFIX)
            and name not in OPTIONS_ALONE
        }
        given["kafka_properties"] = {
            name.removeprefix(KAFKA_PREFIX).lower().replace("_", "."): value
            for name, value in environ.items()
            if name.startswith(KAFKA_PREFIX)
        }
        given |= {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise ConfigurationError("\n".join(_problems(error))) from None

    @model_validator(mode="after")
    def _check_relations(self) -> Self:
        problems = [problem for problem in self._contradictions() if problem]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _contradictions(self) -> list[str | None]:
        return [
            self._at_least("lease_s", HEARTBEATS_PER_LEASE * self.heartbeat_s, "three heartbeat_s"),
            self._at_least("retry_cap_s", self.retry_base_s, "retry_base_s"),
            self._at_least("delivery_timeout_s", self.connect_timeout_s, "connect_timeout_s"),
            self._at_least("request_bytes_max", self.event_bytes_max, "event_bytes_max"),
            self._two_sources_of_keys(),
            self._incomplete_mail_server(),
            self._cluster_without_zookeeper(),
            self._ports_beyond_the_last(),
        ]

    def _at_least(self, name: str, lowest: float, meaning: str) -> str | None:
        value = getattr(self, name)
        if value >= lowest:
            return None
        return f"{variable(name)} is {value}; allowed is {meaning} or more, {lowest:.12g}"

    def _two_sources_of_keys(self) -> str | None:
        if not (self.secret_key and self.secret_key_file):
            return None
        return (
            f"{variable('secret_key_file')} is {self.secret_key_file!r} and "
            f"{variable('secret_key')} is given, too; allowed is one of them"
        )

    def _incomplete_mail_server(self) -> str | None:
        server, file = self.mail_server, self.smtp_password_file
        if (server is None) == bool(self.smtp_from):
            given, missing = ("smtp_url", "smtp_from")[:: 1 if server else -1]
            return f"{variable(given)} is set without {variable(missing)}; allowed is both or none"
        if file and (server is None or server.user is None or server.password is not None):
            return (
                f"{variable('smtp_password_file')} is {file!r}; allowed is with a user and without "
                f"a password in {variable('smtp_url')}"
            )
        return None

    def _cluster_without_zookeeper(self) -> str | None:
        if self.brokers == 1 or self.zookeeper:
            return None
        return (
            f"{variable('brokers')} is {self.brokers} and {variable('zookeeper')} is not given; "
            "brokers find each other through a ZooKeeper: give its HOST:PORT[/chroot]"
        )

    def _ports_beyond_the_last(self) -> str | None:
        highest = PORT_MAX - self.brokers + 1
        if self.broker_port <= highest:
            return None
        return (
            f"{variable('broker_port')} is {self.broker_port}; allowed is {highest} or less, "
            f"for {variable('brokers')} is {self.brokers} and each takes a port"
        )


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part.strip()) for part in text.split(",") if part)


def _problems(error: ValidationError) -> list[str]:
    return [_problem(detail) for detail in error.errors(include_url=False)]


def _problem(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":  # raised above, with a complete message
        return str(detail["ctx"]["error"])
    name = str(detail["loc"][0])
    field = Settings.model_fields.get(name)
    if field is None:
        known = ", ".join(map(variable, Settings.model_fields))
        return f"{variable(name)} is no setting; known are {known}"
    return f"{variable(name)} is {detail['input']!r}; allowed is {_allowed(field)}"


_KINDS: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    str: "a text",
}


def _allowed(field: FieldInfo) -> str:
    """Describe the allowed values of a field by its type and limits."""
    words = [_KINDS[field.annotation]]
    for bound in field.metadata:
        match bound:
            case Ge(ge=lowest):
                words.append(f"from {lowest}")
            case Le(le=highest):
                words.append(f"to {highest}")
            case MinLen(min_length=length):
                words.append(f"of {length} character or more")
    return " ".join(words)
