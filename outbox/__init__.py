"""Delivery of what was committed: the relay and its consumers. See README.md beside this file."""

from outbox.mail import Mail, MailConsumer, SmtpServer
from outbox.relay import Consumer, Delivered, Outcome, Relay, RelaySettings, Settled, Undelivered

__all__ = [
    "Consumer",
    "Delivered",
    "Mail",
    "MailConsumer",
    "Outcome",
    "Relay",
    "RelaySettings",
    "Settled",
    "SmtpServer",
    "Undelivered",
]
