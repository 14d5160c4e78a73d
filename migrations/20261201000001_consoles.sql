-- A machine's console is heard by the daemon itself, beside the lines of the agent's spool: each source numbers its own
-- lines, and the order in which they arrived is the one that people read.

alter table logs
    add column source text not null default 'agent' check (source in ('agent', 'console')),
    add column arrived bigint generated always as identity;
alter table logs drop constraint logs_pkey;
alter table logs add primary key (attempt_id, source, n);
