-- Which action a call of a tool with a business key means: its own, or that of the call that asked for the key first.
-- A call gets another row when the action it shared was cancelled; its row of the highest revision counts.
-- `open`: it shares an action that was not settled when it asked, so its run may have to be woken.
create table surefoot.action_calls (
    call      text not null,
    revision  integer not null check (revision > 0),
    tenant    text not null,
    run_id    text not null references surefoot.runs,
    segment   integer not null,
    tool      text not null,
    key       text not null check (length(key) between 1 and 200),
    action_id text not null references surefoot.actions,
    open      boolean not null,
    at        timestamptz not null default clock_timestamp(),
    primary key (call, revision)
);
create index action_calls_key on surefoot.action_calls (tenant, tool, key, revision);
create index action_calls_action on surefoot.action_calls (action_id);
create index action_calls_open on surefoot.action_calls (action_id) where open;

alter table surefoot.action_calls enable row level security;
alter table surefoot.action_calls force row level security;
create policy tenant on surefoot.action_calls using (tenant = current_setting('surefoot.tenant', true));
create policy worker on surefoot.action_calls to surefoot_worker using (true);
grant select, insert, update on surefoot.action_calls to surefoot_app, surefoot_worker;

-- The effect that an action undoes. Not validated: every row there has none, and so no scan holds the lock.
alter table surefoot.actions add column undoes text;
alter table surefoot.actions add constraint actions_undoes_fkey
    foreign key (undoes) references surefoot.actions not valid;
alter table surefoot.actions add constraint actions_undoes_effect check (undoes is null or kind = 'effect') not valid;
