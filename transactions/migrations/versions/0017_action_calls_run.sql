-- Reads its table; meanwhile rows can be read, and wait to be written.
create index action_calls_run on surefoot.action_calls (run_id);
