//! Builds, the wishes for them, and the images they became. A build belongs to no bisection.

use super::{Result, Store, say};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// A kernel somebody wants built.
#[derive(Clone, Debug)]
pub struct Wish {
    pub kernel_key: String,
    pub kernel: Value,
    /// A job waits for it; else it is built ahead.
    pub urgent: bool,
}

/// A wish that a builder could carry out now.
#[derive(Clone, Debug)]
pub struct BuildClaim {
    pub bisection_id: Uuid,
    pub build_id: Uuid,
    pub priority: i32,
    pub waited_s: f64,
    pub urgency: i32,
    pub recipe: Value,
    pub cc_digest: String,
}

/// A kernel that was built for this recipe by this compiler, for whichever search.
#[derive(Clone, Debug)]
pub struct KnownImage {
    pub kernel: Value,
    pub digest: String,
}

/// Lab's troubles a build may have before the jobs that wait for it are given up.
pub(crate) const BUILD_TROUBLES_LIMIT: i32 = 3;

impl Store {
    pub async fn images_for(&self, bisection: Uuid) -> Result<Vec<KnownImage>> {
        let rows = sqlx::query_as!(
            KnownImage,
            "select k.kernel, i.digest
             from bisections b
             join builds k on k.tree = b.tree and k.recipe_digest = b.recipe_digest and k.cc_digest = b.cc_digest
             join images i on i.id = k.image_id
             where b.id = $1 and k.state = 'built' order by k.kernel_key",
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Seconds that recent builds of this recipe took.
    pub async fn build_seconds(&self, bisection: Uuid) -> Result<Vec<f64>> {
        let rows = sqlx::query_scalar!(
            r#"select k.wall_s as "wall_s!" from bisections b
               join builds k on k.tree = b.tree and k.recipe_digest = b.recipe_digest and k.cc_digest = b.cc_digest
               where b.id = $1 and k.state = 'built' and k.wall_s is not null
               order by k.ended_at desc limit 50"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Kernels that were built last for a recipe: their trees are likely on the builders.
    pub async fn recent_builds(&self, tree: &str, recipe_digest: &str) -> Result<Vec<Value>> {
        let rows = sqlx::query_scalar!(
            "select kernel from builds where tree = $1 and recipe_digest = $2 and state = 'built'
             order by ended_at desc limit 6",
            tree,
            recipe_digest
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// What builders could build now: urgent first, then in the order of the decisions.
    pub async fn build_claims(&self) -> Result<Vec<BuildClaim>> {
        let rows = sqlx::query_as!(
            BuildClaim,
            r#"select w.bisection_id, k.id as build_id, b.priority, w.urgency, r.body as recipe, k.cc_digest,
                      extract(epoch from now() - b.granted_at)::float8 as "waited_s!"
               from wishes w
               join builds k on k.id = w.build_id and k.state = 'wanted' and k.not_before <= now()
               join bisections b on b.id = w.bisection_id and b.state = 'open'
                                    and b.planned_version = b.record_version
               join definitions r on r.digest = k.recipe_digest
               order by w.urgency desc, w.place, w.bisection_id limit 500"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Wanted jobs whose kernel cannot be had become observations: the kernel's fault where its build failed,
    /// the lab's where building it met trouble too often. True where there was something to settle.
    pub async fn settle_unbuildable(&self) -> Result<bool> {
        let stuck = sqlx::query!(
            r#"select distinct b.id as "id!", k.id as "build_id!"
               from jobs j
               join bisections b on b.id = j.bisection_id and b.state = 'open'
               join builds k on k.tree = b.tree and k.kernel_key = j.kernel_key
                                and k.recipe_digest = b.recipe_digest and k.cc_digest = coalesce(b.cc_digest, '')
               where j.state = 'wanted'
                 and (k.state = 'failed' or (k.state = 'wanted' and k.failures >= $1))"#,
            BUILD_TROUBLES_LIMIT
        )
        .fetch_all(&self.pool)
        .await?;
        for s in &stuck {
            let mut tx = self.pool.begin().await?;
            settle_one(&mut tx, s.id, s.build_id).await?;
            tx.commit().await?;
        }
        Ok(!stuck.is_empty())
    }
}

async fn settle_one(db: &mut PgConnection, bisection: Uuid, build: Uuid) -> Result<()> {
    let open = sqlx::query_scalar!(
        "select id from bisections where id = $1 and state = 'open' for no key update",
        bisection
    )
    .fetch_optional(&mut *db)
    .await?;
    let build = sqlx::query!(
        "select state, failure, kernel_key from builds where id = $1",
        build
    )
    .fetch_one(&mut *db)
    .await?;
    if open.is_none() {
        return Ok(());
    }
    let outcome = match build.state.as_str() {
        "failed" => "build_failed",
        _ => "lost",
    };
    let settled = sqlx::query!(
        "with settled as (
             update jobs set state = 'done', ended_at = now()
             where bisection_id = $1 and kernel_key = $2 and state = 'wanted'
             returning *)
         insert into observations (bisection_id, job_id, kernel_key, kernel, machine, lane, replicate, outcome,
                                   observed_at)
         select bisection_id, id, kernel_key, kernel, machine, lane, replicate, to_jsonb($3::text), now() from settled
         on conflict do nothing",
        bisection,
        build.kernel_key,
        outcome
    )
    .execute(&mut *db)
    .await?
    .rows_affected();
    if settled == 0 {
        return Ok(());
    }
    sqlx::query!(
        "update bisections set record_version = record_version + 1 where id = $1",
        bisection
    )
    .execute(&mut *db)
    .await?;
    let short = super::jobs::short_key(&build.kernel_key);
    let text = match &build.failure {
        Some(failure) => format!(
            "{short} does not build ({})",
            failure["class"].as_str().unwrap_or("other")
        ),
        None => format!("{short}: the lab could not build it, nothing is known of the kernel"),
    };
    say(db, bisection, "failed", &text).await
}

/// Replaces what a bisection wishes built. New kernels become wanted builds; known ones stay as they are, but
/// a build given up for the lab's trouble gets a new chance, a minute later.
pub(crate) async fn replace_wishes(db: &mut PgConnection, bisection: Uuid, wishes: &[Wish]) -> Result<()> {
    sqlx::query!("delete from wishes where bisection_id = $1", bisection)
        .execute(&mut *db)
        .await?;
    let mut placed: Vec<(usize, &Wish)> = wishes.iter().enumerate().collect();
    // In one order for all, so that two decisions never wait for each other's rows.
    placed.sort_by(|a, b| a.1.kernel_key.cmp(&b.1.kernel_key));
    for (place, wish) in placed {
        sqlx::query!(
            "insert into builds (id, tree, kernel_key, kernel, recipe_digest, cc_digest, state)
             select $2, tree, $3, $4, recipe_digest, coalesce(cc_digest, ''), 'wanted' from bisections where id = $1
             on conflict (tree, kernel_key, recipe_digest, cc_digest)
             do update set failures = 0, not_before = now() + interval '60 s'
             where builds.state = 'wanted' and builds.failures >= $5",
            bisection,
            Uuid::now_v7(),
            wish.kernel_key,
            wish.kernel,
            BUILD_TROUBLES_LIMIT
        )
        .execute(&mut *db)
        .await?;
        sqlx::query!(
            "insert into wishes (bisection_id, build_id, urgency, place)
             select b.id, k.id, $3, $4 from bisections b
             join builds k on k.tree = b.tree and k.kernel_key = $2 and k.recipe_digest = b.recipe_digest
                              and k.cc_digest = coalesce(b.cc_digest, '')
             where b.id = $1 and k.state in ('wanted', 'held')
             on conflict (bisection_id, build_id) do update set urgency = greatest(wishes.urgency, excluded.urgency)",
            bisection,
            wish.kernel_key,
            i32::from(wish.urgent),
            i32::try_from(place).unwrap_or(i32::MAX)
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}
