-- A machine that boots strange kernels itself is tried before it serves, once a lane: the good kernel, one that panics,
-- one that hangs, each back home by itself or by its power control. A trial is an attempt of its own kind.

alter table lanes add column admission jsonb;               -- {tries: [{trial, passed, what, seconds, at}], facts}; null: none yet

alter table attempts
    add column trial text check (trial in ('good', 'panic', 'hang')),
    add column lane integer;                                 -- of a trial
alter table attempts drop constraint attempts_check;
alter table attempts add constraint one_purpose check (num_nonnulls(build_id, job_id, trial) = 1);
alter table attempts add constraint trial_of_a_lane check ((trial is null) = (lane is null));
