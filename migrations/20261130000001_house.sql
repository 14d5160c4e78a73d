-- The record: facts are append-only, opinions are derived, states are enums that carry their data by CHECK.
-- Postgres is the only place where passes meet; its now() is the only clock of leases.

-- Everything a running search depends on is kept by digest, so that editing a file never changes it.
create table definitions (
    digest text primary key check (digest ~ '^[0-9a-f]{64}$'),
    kind text not null check (kind in ('case', 'recipe', 'boot', 'policy')),
    body jsonb not null,
    created_at timestamptz not null default now()
);

create table bisections (
    id uuid primary key,
    number bigint generated always as identity unique,      -- what people say: "bisection 12"
    tree text not null,
    good_rev text not null,                                  -- as typed
    bad_rev text not null,
    good_commit text not null check (good_commit ~ '^[0-9a-f]{40,64}$'),
    bad_commit text not null check (bad_commit ~ '^[0-9a-f]{40,64}$'),
    first_parent boolean not null default false,
    case_digest text not null references definitions,
    recipe_digest text not null references definitions,
    policy_digest text not null references definitions,
    cc_digest text,                                          -- one compiler builds a whole search; '' where none is known
    machines text[] not null check (cardinality(machines) > 0),
    priority integer not null default 0 check (priority between -100 and 100),
    request jsonb not null,                                  -- the body as accepted
    request_digest text not null,                            -- equal open requests are joined by this
    state text not null check (state in ('open', 'concluded', 'cancelled')),
    record_version bigint not null default 1,                -- raised by every new fact
    planned_version bigint not null default 0,               -- the version the latest decision was made from
    created_at timestamptz not null default now(),
    granted_at timestamptz not null default now(),           -- last grant of a machine: ageing counts from here
    wake_at timestamptz,                                     -- plan again then, though no fact came (a limit is due)
    ended_at timestamptz,
    pinned boolean not null default true,                    -- its commits are held by a ref in the mirror
    conclusion jsonb,
    check ((state = 'open') = (ended_at is null)),
    check ((state = 'concluded') = (conclusion is not null))
);
create unique index one_open_per_request on bisections (request_digest) where state = 'open';

create table recipients (
    bisection_id uuid not null references bisections,
    channel text not null check (channel in ('mail', 'webhook')),
    address text not null,
    added_at timestamptz not null default now(),
    primary key (bisection_id, channel, address)
);

-- A kernel is a commit with its variants; its key is the canonical text of all of them.
-- A build belongs to no bisection: any search that needs this kernel under this recipe shares it.
create table builds (
    id uuid primary key,
    tree text not null,
    kernel_key text not null,
    kernel jsonb not null,                                   -- {commit, revert, patches, layout}
    recipe_digest text not null references definitions,
    state text not null check (state in ('wanted', 'held', 'built', 'failed')),
    cc_digest text not null default '',
    image_id text,
    failure jsonb,                                           -- {class, excerpt}
    wall_s double precision,
    config_changes text[] not null default '{}',
    failures integer not null default 0,                     -- attempts that ended by the lab's trouble
    not_before timestamptz not null default now(),           -- back-off after the lab's trouble
    created_at timestamptz not null default now(),
    ended_at timestamptz,
    unique (tree, kernel_key, recipe_digest, cc_digest),
    check ((state = 'built') = (image_id is not null)),
    check ((state = 'failed') = (failure is not null))
);

-- Which open bisection wants which build, by its latest decision.
create table wishes (
    bisection_id uuid not null references bisections,
    build_id uuid not null references builds,
    urgency integer not null check (urgency in (0, 1)),      -- 1: a job waits for it; 0: built ahead
    place integer not null,                                  -- order within the decision
    primary key (bisection_id, build_id)
);

create table images (
    id text primary key check (id ~ '^[0-9a-f]{64}$'),       -- sha256 of the manifest
    kind text not null check (kind in ('kernel', 'userspace')),
    arch text not null,
    digest text not null,                                    -- equal: the same binary
    build_id text not null,
    release text not null,
    manifest jsonb not null,
    created_at timestamptz not null default now()
);
alter table builds add foreign key (image_id) references images;

create table machines (
    name text primary key,
    lane integer not null default 1,                         -- raised when its recorded state changes
    lane_digest text not null,                               -- of boot method and held settings
    state text not null check (state in ('idle', 'quarantined', 'retired')),
    reason text,                                             -- why quarantined
    token bigint not null default 0,                         -- highest fencing token given out
    lost_in_a_row integer not null default 0,
    probe jsonb,
    probed_at timestamptz,
    updated_at timestamptz not null default now(),
    check ((state = 'quarantined') = (reason is not null))
);

create table lanes (
    machine text not null references machines,
    number integer not null,
    digest text not null,
    description jsonb not null,
    opened_at timestamptz not null default now(),
    primary key (machine, number)
);

-- A job is one wish of one bisection: (kernel, machine, replicate) is its identity there.
create table jobs (
    id uuid primary key,
    bisection_id uuid not null references bisections,
    kernel_key text not null,
    kernel jsonb not null,
    machine text not null references machines,
    lane integer not null,
    replicate integer not null check (replicate >= 0),
    runs integer not null check (runs between 1 and 1000),
    state text not null check (state in ('wanted', 'held', 'done', 'cancelled')),
    place integer not null default 0,                        -- order within its decision
    failures integer not null default 0,                     -- attempts that ended by the lab's trouble
    not_before timestamptz not null default now(),           -- back-off after the lab's trouble
    created_at timestamptz not null default now(),
    ended_at timestamptz,
    unique (bisection_id, kernel_key, machine, lane, replicate)
);
create index jobs_wanted on jobs (machine, not_before) where state = 'wanted';

-- One try, of a build or of a job, on a machine; its id is the agent's order id.
create table attempts (
    id uuid primary key,
    build_id uuid references builds,
    job_id uuid references jobs,
    bisection_id uuid references bisections,                 -- whom it serves (for builds: who asked first)
    machine text not null references machines,
    token bigint not null,
    state text not null check (state in ('held', 'done')),
    ended_by text check (ended_by in ('report', 'cancel', 'trouble', 'gone')),
    trouble text,
    carrier text,                                            -- coordinator instance that carries it
    carried_until timestamptz,                               -- its lease
    deadline_at timestamptz not null,
    cancel_asked boolean not null default false,
    started_at timestamptz not null default now(),
    ended_at timestamptz,
    phase text,                                              -- for people: what it does now
    report jsonb,                                            -- the agent's, as it came: evidence
    seen_lines bigint not null default 0,                    -- spool lines received so far
    check ((build_id is null) <> (job_id is null)),
    check ((state = 'done') = (ended_at is not null)),
    check ((state = 'done') = (ended_by is not null))
);
-- A machine does one thing at a time; a build or job has one attempt at a time.
create unique index one_attempt_per_machine on attempts (machine) where state = 'held';
create unique index one_attempt_per_build on attempts (build_id) where state = 'held' and build_id is not null;
create unique index one_attempt_per_job on attempts (job_id) where state = 'held' and job_id is not null;
create unique index tokens_rise on attempts (machine, token);

-- A boot is a fact of its own, which several cases and bisections may use.
create table boots (
    id uuid primary key,
    attempt_id uuid unique references attempts,
    image_id text not null references images,
    machine text not null references machines,
    lane integer not null,
    number integer not null check (number >= 0),
    started_at timestamptz not null,
    boot_id text not null default '',
    outcome text not null check (outcome in ('booted', 'failed')),
    fault jsonb,                                             -- {fault, excerpt, phase}
    proof jsonb,
    environment jsonb not null default '{}',
    seconds jsonb not null default '{}',
    created_at timestamptz not null default now(),
    unique (image_id, machine, lane, number),
    check ((outcome = 'failed') = (fault is not null))
);

-- What a boot yielded for one case. values: {metric: [number | {"at_least": x} | {"at_most": x}]}
create table samples (
    boot_id uuid not null references boots,
    case_digest text not null references definitions,
    place integer not null default 0,
    parser_version integer not null,
    values jsonb not null,
    raw jsonb not null,                                      -- the runs as they came: exit, wall_s, stdout, stderr
    created_at timestamptz not null default now(),
    primary key (boot_id, case_digest, place)
);

-- One outcome of one job; append-only; all that plan may know.
create table observations (
    id bigint generated always as identity primary key,
    bisection_id uuid not null references bisections,
    job_id uuid unique references jobs,
    kernel_key text not null,
    kernel jsonb not null,
    machine text not null,
    lane integer not null,
    replicate integer not null,
    outcome jsonb not null,                                  -- as in plan-interface: {"measured": …} | "build_failed" | …
    boot_id uuid references boots,
    observed_at timestamptz not null,                        -- when the boot's first run started
    created_at timestamptz not null default now(),
    unique (bisection_id, kernel_key, machine, lane, replicate)
);

create table overrides (
    id bigint generated always as identity primary key,
    bisection_id uuid not null references bisections,
    commit_id text not null,
    verdict text not null check (verdict in ('good', 'bad', 'skip', 'none')),   -- none: taken back
    author text not null default '',
    created_at timestamptz not null default now()
);

-- A plan that was carried out, with the version of the record and of the planner that made it.
create table decisions (
    id bigint generated always as identity primary key,
    bisection_id uuid not null references bisections,
    record_version bigint not null,
    planner_version integer not null,
    plan jsonb not null,
    made_at timestamptz not null default now(),
    unique (bisection_id, record_version)
);

-- Evidence of attempts: console text and build logs in order.
create table logs (
    attempt_id uuid not null references attempts,
    n bigint not null,                                       -- spool line
    kind text not null check (kind in ('console', 'log', 'run', 'phase')),
    text text not null,
    at timestamptz not null,
    primary key (attempt_id, n)
);

-- One message owed to one recipient. The id is the Message-ID and the webhook-id.
create table notices (
    id uuid primary key,
    bisection_id uuid not null references bisections,
    channel text not null check (channel in ('mail', 'webhook')),
    address text not null,
    subject text not null,
    body text not null,
    state text not null check (state in ('waiting', 'sent', 'failed')),
    tries integer not null default 0,
    next_try_at timestamptz not null default now(),
    leased_until timestamptz,
    last_error text,
    created_at timestamptz not null default now(),
    sent_at timestamptz,
    unique (bisection_id, channel, address),
    check ((state = 'sent') = (sent_at is not null))
);

-- What people and pages follow: one row per thing that happened, never a decision's input.
create table events (
    id bigint generated always as identity primary key,
    bisection_id uuid not null references bisections,
    kind text not null,                                      -- submitted, decided, building, built, booting, measured, failed, concluded, …
    text text not null,
    at timestamptz not null default now()
);
create index events_of on events (bisection_id, id);
