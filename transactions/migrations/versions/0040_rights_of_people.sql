-- Which limits hold, what a tenant keeps, and which version is current; then agents are as that one has them.
grant select, insert, update on surefoot.limits, surefoot.retention_policies to surefoot_admin;
grant select, update (current_since, current_by) on surefoot.versions to surefoot_admin;
grant select on surefoot.version_agents to surefoot_admin;
grant select, insert, update (version, input_schema, limits, seen_at) on surefoot.agents to surefoot_admin;
-- A run is held, or moved to another version, at its next boundary; a schedule is somebody's of its tenant. What was started
-- by it last is the scheduler's to say.
grant update (asked, asked_reason, held_for, pinned_version, refused_by) on surefoot.runs to surefoot_api;
grant insert on surefoot.schedules to surefoot_api;
grant update (agent, input, cron, time_zone, principal, priority, missed, overlap, enabled, next_at, last_why, changed_at,
              changed_by, removed_at) on surefoot.schedules to surefoot_api;
-- Who removes tokens sees when they ended, and nothing that opens anything.
revoke select on surefoot.api_tokens from surefoot_retention;
grant select (token_id, tenant, expires_at, revoked_at) on surefoot.api_tokens to surefoot_retention
