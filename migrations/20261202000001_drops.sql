-- A boot whose surroundings speak against its number is dropped before the number is looked at: it is no observation, and
-- what was seen of it stays here. A kernel whose boots are dropped more often than others' is a finding.

create table drops (
    id bigint generated always as identity primary key,
    attempt_id uuid not null unique references attempts,
    bisection_id uuid not null references bisections,
    job_id uuid not null references jobs,
    kernel_key text not null,
    kernel jsonb not null,
    machine text not null references machines,
    lane integer not null,
    replicate integer not null,
    reason text not null check (reason in ('environment', 'disturbed')),
    what text not null,                                      -- for people: what differs or what went on
    environment jsonb not null default '{}',
    dropped_at timestamptz not null default now()
);
create index drops_of on drops (bisection_id, id);
create index drops_of_job on drops (job_id);
