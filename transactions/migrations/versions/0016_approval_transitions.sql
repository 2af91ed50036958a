create trigger keep_first_state before insert on surefoot.approvals
    for each row execute function surefoot.keep_transitions('approval_id');
create trigger keep_transitions before update on surefoot.approvals
    for each row when (old.state is distinct from new.state) execute function surefoot.keep_transitions('approval_id');
