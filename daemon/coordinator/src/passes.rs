//! Passes: each looks at the tables, does what is due there, and writes new facts. Each is idempotent and takes
//! nothing but the tables and its hands, so a retry is the next pass and a restart is the first one.
//!
//! | pass | looks for | does |
//! |---|---|---|
//! | [`drive`] | open bisections with news | plans, writes the decision and its wishes |
//! | [`dispatch`] | free machines and wishes, attempts nobody carries | grants, carries |
//! | [`deliver`] | notices owed | mail, webhook |
//! | [`sweep`] | what is left over | probes, late reports, spools, quarantine, pins |
//!
//! What they must *not* know: each other. They meet in Postgres.

pub mod admit;
mod beside;
pub mod carry;
pub mod deliver;
pub mod dispatch;
pub mod drive;
pub mod evidence;
pub mod finish;
pub mod order;
pub mod sweep;
pub mod travel;

use crate::config::Config;
use crate::fleet::Fleet;
use crate::images::Images;
use crate::post::Post;
use crate::store::{Bell, Store};
use crate::tree::Trees;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A pass also wakes by itself, because a bell may be lost and a lease lapses silently.
const PERIOD: Duration = Duration::from_secs(2);
const SWEEP_PERIOD: Duration = Duration::from_secs(15);
/// At a clean stop carriers lay their attempts down; one that cannot, lets its lease lapse.
const LAY_DOWN_LIMIT: Duration = Duration::from_secs(5);

/// The hands of the passes.
#[derive(Clone)]
pub struct Passes {
    pub store: Store,
    pub trees: Trees,
    pub fleet: Fleet,
    pub images: Images,
    pub post: Arc<Post>,
    pub config: Arc<Config>,
    /// Names this coordinator in leases.
    pub instance: Arc<str>,
    /// What planners remember of open bisections: never truth, only time saved.
    pub planners: Arc<Mutex<BTreeMap<Uuid, bisect::Planner>>>,
}

impl Passes {
    pub fn new(
        store: Store,
        trees: Trees,
        fleet: Fleet,
        images: Images,
        post: Arc<Post>,
        config: Arc<Config>,
    ) -> Passes {
        let instance = Uuid::now_v7().to_string().into();
        Passes {
            store,
            trees,
            fleet,
            images,
            post,
            config,
            instance,
            planners: Arc::default(),
        }
    }

    /// Brings the record in line with the configuration. Before the first pass.
    pub async fn sync(&self) -> anyhow::Result<()> {
        let configured: Vec<_> = self.config.machines.values().map(order::configured).collect();
        Ok(self.store.sync_machines(&configured).await?)
    }

    /// Runs all passes until `stop`, then lays down what is carried.
    pub async fn run(self, stop: CancellationToken) -> anyhow::Result<()> {
        self.sync().await?;
        let bell = self.store.listen();
        let mut carriers = JoinSet::new();
        let drive = repeat("drive", &stop, bell.clone(), PERIOD, async || {
            drive::drive_once(&self).await
        });
        let sweep = repeat("sweep", &stop, bell.clone(), SWEEP_PERIOD, async || {
            sweep::sweep_once(&self).await
        });
        let dispatch = repeat("dispatch", &stop, bell, PERIOD, async || {
            dispatch::dispatch_once(&self, &mut carriers, &stop).await
        });
        let deliver = repeat("deliver", &stop, self.store.listen(), PERIOD, async || {
            deliver::deliver_once(&self.store, &self.post).await?;
            Ok(())
        });
        tokio::join!(drive, dispatch, sweep, deliver);
        let laid_down = async { while carriers.join_next().await.is_some() {} };
        if tokio::time::timeout(LAY_DOWN_LIMIT, laid_down).await.is_err() {
            tracing::warn!(
                "some attempts were not laid down in time; they are taken up when their leases lapse"
            );
        }
        Ok(())
    }
}

/// One pass after another, by bell and by clock. This is where a pass ends, so this is where its error is logged.
async fn repeat(
    name: &'static str,
    stop: &CancellationToken,
    mut bell: Bell,
    period: Duration,
    mut pass: impl AsyncFnMut() -> anyhow::Result<()>,
) {
    loop {
        if let Err(error) = pass().await {
            tracing::error!(pass = name, "{error:#}");
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = bell.rung() => {}
            () = tokio::time::sleep(period) => {}
        }
    }
}
