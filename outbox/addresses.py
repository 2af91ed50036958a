"""Which addresses a webhook may go to: whoever writes its URL must not reach what only this machine can reach."""

import ipaddress
import re
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Written out, since what `ipaddress` calls global differs between versions of Python.
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"),
    )
)
_GLOBAL = tuple(map(ipaddress.ip_network, ("0.0.0.0/0", "2000::/3")))
# Never an endpoint: this network, link-local (where clouds keep their metadata), documentation, benchmarks, multicast,
# reserved, tunnelled. What is mapped or translated (NAT64) hides another address and is outside 2000::/3.
_NOT_GLOBAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "169.254.0.0/16",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "2001::/23",
            "2001:db8::/32",
            "2002::/16",
            "3fff::/20",
        ),
    )
)
# Where clouds keep the credentials of a machine, in ranges that are public or private otherwise.
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254")))
_NAME = re.compile(r"(?=.{1,254}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.?")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


def is_host(host: str) -> bool:
    """Whether it is an address as it is written, or a name. `2130706433`, `0x7f.1` and `0177.0.0.1` are neither."""
    try:
        return "%" not in str(ipaddress.ip_address(host))
    except ValueError:
        return bool(_NAME.fullmatch(host)) and not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2])


def refusal(addresses: Sequence[str], *, allow_private: bool) -> str | None:
    """Why nothing is sent to a host with these addresses; None when each is one to send to."""
    if not addresses:
        return "it has no address"
    for text in addresses:
        address = ipaddress.ip_address(text)
        if address in _METADATA or not _within(address, (*_PRIVATE, *_GLOBAL)) or _within(address, _NOT_GLOBAL):
            return f"{text} is not an address that a webhook goes to"
        if _within(address, _PRIVATE) and not allow_private:
            return f"{text} is a private address"
    return None


def _within(address: Address, networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
