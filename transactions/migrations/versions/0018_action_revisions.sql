-- A person's change of what an action does is an action of its own, which the call means from then on.
alter table surefoot.actions
    add column revises    text references surefoot.actions,
    add column revised_to text references surefoot.actions;
