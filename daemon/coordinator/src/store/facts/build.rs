//! The end of an attempt to build.

use super::{Ending, Finished, NewImage, Row, barred, end_attempt, pause_s};
use crate::store::builds::BUILD_TROUBLES_LIMIT;
use crate::store::jobs::short_key;
use crate::store::machines::{lost_one, proved_well};
use crate::store::{Result, say, storable_json};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

pub(super) async fn finish_build(
    db: &mut PgConnection,
    row: &Row,
    build: Uuid,
    report: Option<&Value>,
    ending: &Ending,
) -> Result<Finished> {
    if let Some(no) = barred(row, ending) {
        return Ok(no);
    }
    end_attempt(db, row, report, ending).await?;
    let known = sqlx::query!(
        "select state, kernel_key, failures from builds where id = $1",
        build
    )
    .fetch_one(&mut *db)
    .await?;
    if known.state == "built" || known.state == "failed" {
        return Ok(Finished::Evidence);
    }
    let short = short_key(&known.kernel_key);
    let said = match ending {
        Ending::Built {
            image,
            wall_s,
            config_changes,
        } => {
            keep_image(db, image).await?;
            sqlx::query!(
                "update builds set state = 'built', image_id = $2, wall_s = $3, config_changes = $4, ended_at = now()
                 where id = $1",
                build,
                image.id,
                *wall_s,
                config_changes
            )
            .execute(&mut *db)
            .await?;
            proved_well(db, &row.machine).await?;
            Some((
                "built",
                format!("{short} built on {} in {wall_s:.1} s", row.machine),
            ))
        }
        Ending::BuildFailed { failure, wall_s } => {
            sqlx::query!(
                "update builds set state = 'failed', failure = $2, wall_s = $3, ended_at = now() where id = $1",
                build,
                storable_json(failure.clone()),
                *wall_s
            )
            .execute(&mut *db)
            .await?;
            proved_well(db, &row.machine).await?;
            None // settling the jobs that wait for it says so
        }
        Ending::Trouble { what } | Ending::Gone { what } => {
            let pause_s = pause_s(known.failures);
            sqlx::query!(
                "update builds set state = 'wanted', failures = failures + 1,
                        not_before = now() + make_interval(secs => $2)
                 where id = $1",
                build,
                pause_s
            )
            .execute(&mut *db)
            .await?;
            if known.failures + 1 >= BUILD_TROUBLES_LIMIT {
                lost_one(db, &row.machine).await?;
            }
            Some(("trouble", format!("building {short} on {}: {what}", row.machine)))
        }
        Ending::Cancelled => {
            sqlx::query!("update builds set state = 'wanted' where id = $1", build)
                .execute(&mut *db)
                .await?;
            None
        }
        Ending::Measured { .. }
        | Ending::BootFailed { .. }
        | Ending::BenchmarkFailed { .. }
        | Ending::Dropped(_)
        | Ending::Tried { .. } => {
            sqlx::query!(
                "update builds set state = 'wanted', failures = failures + 1 where id = $1",
                build
            )
            .execute(&mut *db)
            .await?;
            Some((
                "trouble",
                format!("{} answered an order to build with a measurement", row.machine),
            ))
        }
    };
    let wishers = sqlx::query_scalar!(
        "update bisections set record_version = record_version + 1
         where state = 'open' and id in (select bisection_id from wishes where build_id = $1) returning id",
        build
    )
    .fetch_all(&mut *db)
    .await?;
    if let Some((kind, text)) = said {
        for bisection in wishers {
            say(db, bisection, kind, &text).await?;
        }
    }
    Ok(Finished::Recorded)
}

async fn keep_image(db: &mut PgConnection, image: &NewImage) -> Result<()> {
    sqlx::query!(
        "insert into images (id, kind, arch, digest, build_id, release, manifest)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing",
        image.id,
        image.kind,
        image.arch,
        image.digest,
        image.build_id,
        image.release,
        image.manifest
    )
    .execute(db)
    .await?;
    Ok(())
}
