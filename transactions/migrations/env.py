"""Alembic's environment: migrations run on the connection that `transactions.migrate` hands in."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="schema_version",
    version_table_schema="surefoot",
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
