-- Each reads its table, but not the bytes, which are stored apart; meanwhile rows can be read, and wait to be written.
create unique index artifacts_object on surefoot.artifacts (object, store) where object is not null;
create unique index artifacts_result on surefoot.artifacts (result_of, sha256) where result_of is not null;
create index artifacts_action on surefoot.artifacts (run_id, action_id);
