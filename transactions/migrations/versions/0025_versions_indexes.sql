-- Reads its table; meanwhile rows can be read, and wait to be written.
create index runs_held_for_version on surefoot.runs (run_id) where held_for = 'version' and state = 'held';
create index runs_of_version on surefoot.runs (app_version) where ended_at is null;
