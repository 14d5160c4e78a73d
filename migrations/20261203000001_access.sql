-- Who may do what. A secret is 256 random bits: its SHA-256 is kept, the secret itself nowhere.

create table tokens (
    id uuid primary key,
    name text not null check (name <> ''),                   -- for people; in the log of actions it is the actor
    role text not null check (role in ('viewer', 'submitter', 'operator', 'admin')),
    secret_sha256 bytea not null unique check (octet_length(secret_sha256) = 32),
    created_by text not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    used_at timestamptz,                                     -- within a minute
    revoked_at timestamptz
);

-- A browser shows its token once and is known by a cookie from then on, as long as the token holds.
create table sessions (
    secret_sha256 bytea primary key check (octet_length(secret_sha256) = 32),
    token_id uuid not null references tokens,
    opened_at timestamptz not null default now(),
    expires_at timestamptz not null
);

-- Every request that may change something, written down before it is carried out.
create table actions (
    id bigint generated always as identity primary key,
    at timestamptz not null default now(),
    actor text not null,
    token_id uuid references tokens,
    role text not null,
    method text not null,
    path text not null,
    request_id text not null,
    status integer                                           -- of the answer; null: the daemon ended before it
);
