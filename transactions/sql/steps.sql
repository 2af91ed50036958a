-- name: record
insert into surefoot.steps (run_id, segment, position, generation, tenant, name, how, worker_id, started_at, finished_at)
select :run_id, :segment, (s ->> 'position')::integer, :generation, :tenant, s ->> 'name', s ->> 'how', :worker_id,
       (s ->> 'started_at')::timestamptz, (s ->> 'finished_at')::timestamptz
  from jsonb_array_elements(cast(:steps as jsonb)) as s
on conflict (run_id, segment, position, generation) do nothing

-- name: count
select count(distinct (segment, position)) as recorded from surefoot.steps where run_id = :run_id

-- name: names_of_segment
select distinct on (position) position, name from surefoot.steps
 where run_id = :run_id and segment = :segment order by position, generation desc
