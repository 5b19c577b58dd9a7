"""Example payloads that GitHub and Stripe publish, from an npm package and a Go module."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.support.processes.go_programs import find_go_module
from tests.support.processes.npm_packages import find_npm_file
from tests.support.processes.server_process import skip_or_fail_in_ci

GITHUB: Final = "@octokit/webhooks-examples@7.6.1"
GITHUB_FILE: Final = "api.github.com/index.json"
GITHUB_SHA256: Final = "09d8f0c617876ae9dad22e26fea5510bfcaad50ee7e602659f6db25b87b25815"

STRIPE: Final = "github.com/stripe/stripe-mock@v0.203.0"
STRIPE_FILE: Final = "embedded/openapi/fixtures3.json"
STRIPE_CHECKSUM: Final = "h1:EzW7nb/fphqcAkgVRHAaC88OaAZo6SBWSl54cflDTio="


class PublishedPayload(NamedTuple):
    """A body as its publisher sends it: GitHub's are compact, Stripe's are indented."""

    event_type: str
    body: bytes


def github_payloads() -> list[PublishedPayload]:
    """Return all payloads. Skip the test if npm cannot fetch them; in CI, fail."""
    file, reason = find_npm_file(GITHUB, GITHUB_FILE, GITHUB_SHA256)
    if file is None:
        skip_or_fail_in_ci(reason)
    return [
        PublishedPayload(f"github.{each['name']}", compact_json(payload))
        for each in json.loads(file.read_bytes())
        for payload in each["examples"]
    ]


def stripe_payloads() -> list[PublishedPayload]:
    """Return an event of each resource. Skip the test if Go cannot fetch them; in CI, fail."""
    folder, reason = find_go_module(STRIPE, STRIPE_CHECKSUM)
    if folder is None:
        skip_or_fail_in_ci(reason)
    resources = json.loads((folder / STRIPE_FILE).read_bytes())["resources"]
    return list(_stripe_events(resources))


def _stripe_events(resources: dict[str, Any]) -> Iterator[PublishedPayload]:
    example = resources.pop("event")
    for name, resource in resources.items():
        event = example | {"type": f"{name}.updated", "data": {"object": resource}}
        text = json.dumps(event, ensure_ascii=False, indent=2)
        yield PublishedPayload(f"stripe.{name}.updated", text.encode())


def compact_json(value: Any) -> bytes:
    """Return UTF-8 without spaces between tokens."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
