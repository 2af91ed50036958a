"""Delivery of what was committed: the relay and its consumers. See README.md beside this file."""

from outbox.local import LocalConsumer
from outbox.mail import Mail, MailConsumer
from outbox.outcomes import Consumer, Delivered, OnDatabase, Outcome, Settled, Undelivered
from outbox.relay import Relay, RelaySettings
from outbox.signatures import verify_webhook
from outbox.smtp import SmtpServer
from outbox.subscription import Subscription, unique_subscriptions
from outbox.webhook import WebhookConsumer
from transactions.outbox import Delivery

__all__ = [
    "Consumer",
    "Delivered",
    "Delivery",
    "LocalConsumer",
    "Mail",
    "MailConsumer",
    "OnDatabase",
    "Outcome",
    "Relay",
    "RelaySettings",
    "Settled",
    "SmtpServer",
    "Subscription",
    "Undelivered",
    "WebhookConsumer",
    "unique_subscriptions",
    "verify_webhook",
]
