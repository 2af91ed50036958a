-- name: who_else
select coalesce(surefoot.version_for(:run_id), surefoot.version_for(:run_id, false)) as version

-- name: open_calls_of_other_tools
-- Calls whose answer the model has not seen: what is not settled, and those of the last response that no message after it
-- answers. One may answer others of them: it was stored when the run began to wait.
select distinct a.tool, a.kind from surefoot.actions a join surefoot.runs r on r.run_id = a.run_id
 where a.run_id = :run_id and a.undoes is null and not (a.tool || ' ' || a.kind = any(:tools))
   and (a.settled_at is null
        or (a.turn = r.turns and a.state <> 'CANCELLED'
            and not exists (
                select 1 from surefoot.model_messages m cross join jsonb_array_elements(m.message -> 'parts') p
                 where m.run_id = r.run_id and p ->> 'tool_call_id' = a.call_id
                   and m.seq > (select max(said.seq) from surefoot.model_messages said
                                 where said.run_id = r.run_id and said.message ->> 'kind' = 'response'))))
 order by a.tool

-- name: calls_of_last_turn
select a.call_id from surefoot.actions a join surefoot.runs r on r.run_id = a.run_id and r.turns = a.turn where a.run_id = :run_id

-- name: keep_as_it_was
insert into surefoot.state_migrations (run_id, segment, tenant, from_state, to_state, version, input, messages)
select r.run_id, :segment, :tenant, :from_state, :to_state, :version, case when :input_changed then r.input end,
       (select coalesce(jsonb_agg(jsonb_build_object('seq', m.seq, 'message', m.message) order by m.seq), '[]')
          from surefoot.model_messages m where m.run_id = r.run_id and m.seq = any(:seqs))
  from surefoot.runs r where r.run_id = :run_id

-- name: rewrite_messages
update surefoot.model_messages m set message = c.value -> 'message'
  from jsonb_array_elements(cast(:messages as jsonb)) c where m.run_id = :run_id and m.seq = (c.value ->> 'seq')::integer

-- name: rewrite_input
update surefoot.runs set input = cast(:input as jsonb) where run_id = :run_id

-- name: version_for
select surefoot.version_for(:run_id) as version

-- name: served
select state_version, reads from surefoot.version_agents where version = :version and agent = :agent
