"""Delivery of what was committed: the relay and its consumers. See README.md beside this file."""

from outbox.mail import Mail, MailConsumer
from outbox.relay import Consumer, Delivered, Outcome, Relay, RelaySettings, Settled, Undelivered
from outbox.signatures import verify_webhook
from outbox.smtp import SmtpServer
from outbox.webhook import WebhookConsumer

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
    "WebhookConsumer",
    "verify_webhook",
]
