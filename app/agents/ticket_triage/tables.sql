-- The business tables of ticket_triage. Safe to run again and again; it never changes what is there.

create schema if not exists ticket_triage;

-- What is known to be wrong just now, and the word by which a report is recognised. Kept by whoever runs the services.
create table if not exists ticket_triage.incidents (
    incident  text        primary key,
    component text        not null check (component <> ''),
    title     text        not null,
    closed_at timestamptz
);

insert into ticket_triage.incidents (incident, component, title) values
    ('INC-7', 'export', 'Exports of more than 10,000 rows end early'),
    ('INC-9', 'invoice', 'Invoices show the old address')
on conflict do nothing;

-- How a report was triaged. A row is never changed: a later revision stands in place of it, and an approval of the
-- escalation is bound to the revision that was the last one then.
create table if not exists ticket_triage.triage (
    run_id   text        not null,
    report   int         not null check (report >= 1),
    revision int         not null check (revision >= 1),
    customer text        not null,
    severity text        not null check (severity in ('low', 'high', 'critical')),
    summary  text        not null,
    incident text        references ticket_triage.incidents,
    saved_at timestamptz not null default now(),
    primary key (run_id, report, revision)
);
