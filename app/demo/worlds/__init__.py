"""The outside world: services that run as processes of their own on loopback and know nothing of Surefoot.

    python -m app.demo.worlds.publishing --port 0 --file publishing.sqlite    can be searched, knows no idempotency keys
    python -m app.demo.worlds.mailbox    --port 0 --file mailbox.sqlite       SMTP
    python -m app.demo.worlds.tickets    --port 0 --file tickets.sqlite       honours keys, cannot be searched by them
    python -m app.demo.worlds.jobs       --port 0 --file jobs.sqlite          takes its time, can be asked and cancelled
    python -m app.demo.worlds.payments   --port 0 --file payments.sqlite      neither honours keys nor can be asked
    python -m app.demo.worlds.legacy_tracker --port 0 --file issues.sqlite    can be searched, knows no idempotency keys
    python -m app.demo.worlds.pager      --port 0 --file pages.sqlite         neither honours keys nor can be asked

Each prints one line when it listens, `ready http://127.0.0.1:PORT` or `ready smtp://127.0.0.1:PORT` (port 0 picks a
free one), and answers only after what it was told is on disk: killed and started again on the same file, it knows
everything it had answered for. A function named for what a service keeps (`publishing.publications`, `mailbox.mails`,
`tickets.tickets`, `jobs.jobs`, `payments.payments`, `legacy_tracker.issues`, `pager.pages`) reads such a file from any
process, also while its service runs; `web.requests` and `mailbox.submissions` read everything that reached it.
"""
