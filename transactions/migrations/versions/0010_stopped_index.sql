-- Reads its table; meanwhile rows can be read, and wait to be written.
create index actions_stopped on surefoot.actions (updated_at) where state = 'PREPARED' and failure = 'permission';
