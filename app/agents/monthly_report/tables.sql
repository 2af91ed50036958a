-- The business tables of monthly_report. Safe to run again and again; it never changes what is there.
-- Source of the rows: a CSV file that csv_file.py has checked. Counts are flights, delays minutes, distances miles.

create schema if not exists monthly_report;

-- One row per file that was loaded. Its name here is the SHA-256 of its bytes: a file loaded twice is one data set.
create table if not exists monthly_report.data_sets (
    data_set  text        primary key check (data_set ~ '^[0-9a-f]{64}$'),
    name      text        not null,
    rows      bigint      not null check (rows > 0),
    loaded_at timestamptz not null default now()
);

-- One row per line of a file: one day of one airline at one airport. Never changed once it is loaded.
create table if not exists monthly_report.daily_figures (
    data_set            text   not null references monthly_report.data_sets on delete cascade,
    date                date   not null,
    origin              text   not null,
    carrier             text   not null,
    airline             text   not null,
    flights             bigint not null check (flights >= 0),
    cancelled           bigint not null check (cancelled between 0 and flights),
    departure_delay_min bigint not null,
    delayed_departures  bigint not null check (delayed_departures between 0 and flights),
    arrivals            bigint not null check (arrivals >= 0),
    late_arrivals       bigint not null check (late_arrivals between 0 and arrivals),
    miles               bigint not null check (miles >= 0),
    primary key (data_set, date, origin, carrier)
);
