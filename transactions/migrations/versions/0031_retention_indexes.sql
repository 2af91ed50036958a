-- Runs that are over, in the order in which they are gone through: all of them, and those that still have each part.
create index concurrently if not exists runs_ended on surefoot.runs (tenant, agent, ended_at, run_id)
 where ended_at is not null;
create index concurrently if not exists runs_with_messages on surefoot.runs (tenant, agent, ended_at, run_id)
 where ended_at is not null and messages_removed_at is null;
create index concurrently if not exists runs_with_events on surefoot.runs (tenant, agent, ended_at, run_id)
 where ended_at is not null and events_removed_at is null;
create index concurrently if not exists runs_with_outbox on surefoot.runs (tenant, agent, ended_at, run_id)
 where ended_at is not null and outbox_removed_at is null;
create index concurrently if not exists outbox_entries_of_no_run on surefoot.outbox_entries (tenant, created_at, entry_id)
 where run_id is null;
create index concurrently if not exists artifacts_created on surefoot.artifacts (tenant, created_at, name, version);
-- For the foreign keys, which look here for each row that is removed there.
create index concurrently if not exists waits_of_action on surefoot.waits (action_id) where action_id is not null;
create index concurrently if not exists artifacts_of_action on surefoot.artifacts (action_id) where action_id is not null;
create index concurrently if not exists outbox_entries_of_action on surefoot.outbox_entries (action_id) where action_id is not null;
create index concurrently if not exists inbox_entry on surefoot.inbox (entry_id);
create index concurrently if not exists actions_undoes on surefoot.actions (undoes) where undoes is not null;
create index concurrently if not exists actions_revises on surefoot.actions (revises) where revises is not null;
create index concurrently if not exists actions_revised_to on surefoot.actions (revised_to) where revised_to is not null;
-- Who mentions an artifact: by the hash that is in every reference. Only rows that mention one are in these.
create index concurrently if not exists actions_mentions on surefoot.actions
 using gin (jsonb_path_query_array(request, '$.**.sha256') jsonb_path_ops) with (fastupdate = off) where request @? '$.**.sha256';
create index concurrently if not exists approvals_mentions on surefoot.approvals
 using gin (jsonb_path_query_array(binding, '$.**.sha256') jsonb_path_ops) with (fastupdate = off) where binding @? '$.**.sha256';
create index concurrently if not exists runs_mentions on surefoot.runs
 using gin (jsonb_path_query_array(input, '$.**.sha256') jsonb_path_ops) with (fastupdate = off) where input @? '$.**.sha256';
create index concurrently if not exists runs_answers_mention on surefoot.runs
 using gin (surefoot.references_in(output)) with (fastupdate = off) where output @? '$.**.sha256';
create index concurrently if not exists actions_answers_mention on surefoot.actions
 using gin (surefoot.references_in(result)) with (fastupdate = off) where result @? '$.**.sha256';
create index concurrently if not exists outbox_entries_mention on surefoot.outbox_entries
 using gin (jsonb_path_query_array(payload, '$.**.sha256') jsonb_path_ops) with (fastupdate = off) where payload @? '$.**.sha256';
create index concurrently if not exists model_messages_mention on surefoot.model_messages
 using gin (surefoot.hashes_in(message)) with (fastupdate = off) where message::text ~ '[0-9a-f]{64}'
