-- A client that lost an answer sends its request again under the same key, and gets that answer.

create table idempotency_keys (
    owner text not null,                                     -- whose key: clients choose them without knowing each other
    key text not null,
    request_sha256 text not null,
    claimed_at timestamptz not null default now(),
    status integer,                                          -- null: being carried out
    content_type text,
    location text,
    body bytea,
    primary key (owner, key),
    check ((status is null) = (body is null))
);
