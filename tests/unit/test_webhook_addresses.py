"""Where a webhook never goes, whatever its name is resolved to, redirected to or proxied through."""

import base64
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from outbox import Delivered, Undelivered, WebhookConsumer, addresses
from outbox.addresses import refusal
from tests.certificates import Authority
from tests.hooks import HOST, KEY, SECRET, answer, at, delivery, sent
from tests.receiver import Receiver
from transactions import InvalidInput

PRIVATE = (
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.9.9",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd12::1",
)
NEVER = (
    "0.0.0.0",
    "169.254.169.254",
    "169.254.1.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::1",
    "2001::1",
    "2001:db8::1",
    "fe80::1",
    "fe80::1%lo",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
)
PUBLIC = ("8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "192.1.0.1", "2606:4700::1111", "2a00:1450::1")


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_allowed_only_on_demand(address: str) -> None:
    assert "private" in (refusal([address], allow_private=False) or "")
    assert refusal([address], allow_private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_an_address_that_is_no_endpoint_is_never_allowed(address: str) -> None:
    assert refusal([address], allow_private=False)
    assert refusal([address], allow_private=True)


def test_every_address_of_a_host_has_to_be_allowed() -> None:
    assert refusal(PUBLIC, allow_private=False) is None
    assert refusal([*PUBLIC, "10.0.0.1"], allow_private=False)
    assert refusal([], allow_private=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_nothing_is_sent_to_this_machine(authority: Authority, host: str) -> None:
    """With the resolver of this machine; the server would be there."""
    receiver = Receiver()
    async with receiver.listening(authority.server("IP:127.0.0.1", "DNS:localhost")):
        consumer = WebhookConsumer(f"https://{host}:{receiver.port}/", secret=SECRET, timeout_s=5.0)
        outcome = await consumer.take(delivery())
        assert isinstance(outcome, Undelivered)
        assert outcome.final
        assert "nothing was sent" in outcome.detail
        assert "allow_private" in outcome.detail
        assert receiver.requests == []
        if host in ("127.0.0.1", "localhost"):
            allowed = WebhookConsumer(f"https://{host}:{receiver.port}/", secret=SECRET, allow_private=True)
            assert isinstance(await allowed.take(delivery()), Delivered)


async def test_http_goes_to_this_machine_on_demand() -> None:
    receiver = Receiver()
    async with receiver.listening():
        consumer = WebhookConsumer(f"http://127.0.0.1:{receiver.port}/in", secret=SECRET, allow_private=True)
        assert isinstance(await consumer.take(delivery()), Delivered)
    assert receiver.requests[0].headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.fixture
def first_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands for an address of the world, and 127.0.0.2 for one of this network."""
    private = [network for network in addresses._PRIVATE if str(network) != "127.0.0.0/8"]
    monkeypatch.setattr(addresses, "_PRIVATE", (*private, addresses.ipaddress.ip_network("127.0.0.2/32")))


class Rebinding:
    """A name server that answers with an address of the world first, and with one of this network from then on."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked += 1
        return ["127.0.0.1"] if self.asked == 1 else ["127.0.0.2"]


class Careless(WebhookConsumer):
    """Resolves the name again to connect, as a client that is given the name does."""

    async def _post_to(self, address: str, *rest: Any) -> Any:
        [again] = await self._resolve(self._host, self._port)
        return await super()._post_to(again, *rest)


@pytest.mark.usefixtures("first_is_public")
@pytest.mark.parametrize("kind", [WebhookConsumer, Careless])
async def test_what_was_checked_is_what_is_connected_to(authority: Authority, kind: type[WebhookConsumer]) -> None:
    outside, inside, rebinding = Receiver(), Receiver(), Rebinding()
    async with AsyncExitStack() as stack:
        tls = authority.server(f"DNS:{HOST}")
        await stack.enter_async_context(outside.listening(tls))
        await stack.enter_async_context(inside.listening(tls, "127.0.0.2", outside.port))
        consumer = kind(f"https://{HOST}:{outside.port}/", secret=SECRET, resolve=rebinding)
        first = await consumer.take(delivery())
        if kind is Careless:  # the control: it hands the entry to whom nobody checked
            assert (len(outside.requests), len(inside.requests)) == (0, 1)
            return
        assert isinstance(first, Delivered)
        assert rebinding.asked == 1
        second = await consumer.take(delivery(2))
    assert isinstance(second, Undelivered)
    assert second.final
    assert (len(outside.requests), len(inside.requests)) == (1, 0)


async def test_another_address_is_tried_when_one_takes_no_connection(receiver: Receiver) -> None:
    assert isinstance(await sent(receiver, resolve=at("::1", "127.0.0.1")), Delivered)
    outcome = await sent(receiver, resolve=at("::1"))
    assert isinstance(outcome, Undelivered)
    assert not outcome.final
    assert "transient" in outcome.detail


async def test_a_redirect_is_not_followed(receiver: Receiver, authority: Authority) -> None:
    other = Receiver()
    async with other.listening(authority.server(f"DNS:{HOST}")):
        for status in (301, 302, 303, 307, 308):
            receiver.answers = [answer(status, "", f"Location: https://{HOST}:{other.port}/moved")]
            outcome = await sent(receiver)
            assert isinstance(outcome, Undelivered)
            assert outcome.final
            assert "a redirect is never followed" in outcome.detail
    assert other.requests == []


async def test_a_proxy_in_the_environment_is_not_asked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert isinstance(await sent(receiver), Delivered)


async def test_a_certificate_for_another_name_or_by_nobody_we_trust_gets_nothing(
    receiver: Receiver, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Receiver()
    async with other.listening(authority.server("DNS:evil.example.org", "IP:127.0.0.1")):
        wrong = [await sent(other)]
    monkeypatch.delenv("SSL_CERT_FILE")
    wrong.append(await sent(receiver))
    for outcome in wrong:
        assert isinstance(outcome, Undelivered)
        assert not outcome.final
        assert "certificate" in outcome.detail.lower()
    assert other.requests == receiver.requests == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example.org/", "in the clear"),
        ("ftp://hooks.example.org/", "not one of the web"),
        ("hooks.example.org", "not one of the web"),
        ("https:///in", "not one of the web"),
        ("https://hooks.example.org:no/", "not one"),
        ("https://ada:hunter22@hooks.example.org/", "user or password"),
        ("https://2130706433/", "neither a name nor an address"),
        ("https://0x7f000001/", "neither a name nor an address"),
        ("https://0177.0.0.1/", "not one"),
        ("https://127.1/", "neither a name nor an address"),
        ("https://%31%32%37.0.0.1/", "neither a name nor an address"),
        ("https://a_b..c/", "neither a name nor an address"),
        ("https://" + "a" * 64 + ".org/", "neither a name nor an address"),
        ("", "not one of the web"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_at_once(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as error:
        WebhookConsumer(url, secret=SECRET)
    assert "https://" in str(error.value)
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "   ",
        [],
        "hunter22",
        "whsec_",
        "whsec_???",
        base64.b64encode(KEY).decode(),
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET + " whsec_nonsense",
    ],
)
def test_a_secret_that_is_missing_or_none_is_refused_at_once(secret: Any) -> None:
    with pytest.raises(InvalidInput, match="openssl rand -base64 32") as error:
        WebhookConsumer(f"https://{HOST}/", secret=secret)
    assert "hunter22" not in str(error.value)
    assert "nonsense" not in str(error.value)
