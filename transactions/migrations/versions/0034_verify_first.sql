-- Whether it may have been done in what a restore has lost: then that is looked for before it is sent.
alter table surefoot.actions add column verify_first boolean not null default false;

-- So it is with every effect of a run that is older than the epoch. One that goes by a business key may have been done by a
-- run that was lost with its row: where the other side can be asked, it is asked, whichever run it is.
create function surefoot.mark_verify_first() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    v_epoch integer := surefoot.epoch();
begin
    if new.kind = 'effect' and v_epoch > 1 then
        new.verify_first := (new.safety = 'verify' and not starts_with(new.action_id, new.run_id || '/'))
            or exists (select 1 from surefoot.runs r where r.run_id = new.run_id and r.epoch < v_epoch);
    end if;
    return new;
end $$;
create trigger mark_verify_first before insert on surefoot.actions
    for each row execute function surefoot.mark_verify_first();

-- The API settles, decides and cancels; to claim is a worker's.
create policy api_claims_nothing on surefoot.actions as restrictive for update to surefoot_api
    using (true) with check (state <> 'IN_FLIGHT');

-- Whoever may write the column, the API among them, cannot have it sent unseen: it is looked for, or it is settled.
create function surefoot.keep_verify_first() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    raise exception '% has to be looked for, or settled, before it is sent: it may have been done in what a restore has lost',
        old.action_id using errcode = 'check_violation';
end $$;
create trigger keep_verify_first before update of verify_first on surefoot.actions
    for each row when (old.verify_first and not new.verify_first and new.state in ('PREPARED', 'IN_FLIGHT'))
    execute function surefoot.keep_verify_first();
