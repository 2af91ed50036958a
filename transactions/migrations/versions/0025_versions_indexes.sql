create index concurrently if not exists runs_held_for_version on surefoot.runs (run_id) where held_for = 'version' and state = 'held';
create index concurrently if not exists runs_of_version on surefoot.runs (app_version) where ended_at is null;
