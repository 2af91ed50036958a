"""The outside world of the demo: services that run as processes of their own on loopback and know nothing of Surefoot.

    python -m app.demo.worlds.publishing --port 0 --file publishing.sqlite
    python -m app.demo.worlds.mailbox    --port 0 --file mailbox.sqlite

Each prints one line when it listens, `ready http://127.0.0.1:PORT` or `ready smtp://127.0.0.1:PORT` (port 0 picks a
free one), and answers only after what it was told is on disk: killed and started again on the same file, it knows
everything it had answered for. `publishing.publications`, `publishing.requests`, `mailbox.mails` and
`mailbox.submissions` read such a file from any process, also while its service runs.
"""
