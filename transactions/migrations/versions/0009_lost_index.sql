-- Reads its table; meanwhile rows can be read, and wait to be written.
-- The watchdog looks for these among all segments there ever were.
create index segments_lost on surefoot.segments (run_id, n) where outcome = 'lost';
