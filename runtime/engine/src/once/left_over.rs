//! Claims that an earlier run of the server, or an attempt that broke off, left without an end: looked into for as long as the
//! engine lives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use spillgate_model::{Code, Refusal};
use spillgate_queue::{LaneName, Leased, Store, Take, TakeFrom};
use spillgate_telemetry::happened;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::DIRECT;
use super::ending::{self, Ending};
use super::settling::{self, LEASE};
use crate::durable::{self, Claim, Content};
use crate::reload::Inner;

/// Claims that are looked into at once; the others wait in the store.
const AT_ONCE: usize = 32;
/// Lanes are looked at this long after something happened in one, so that a busy server looks seldom; and now and then anyway.
const AFTER_WORK: Duration = Duration::from_millis(500);
const ANYWAY: Duration = Duration::from_secs(30);

/// How long the end of a claim is kept whose flow is gone, and with it what it says.
const KEEP: Duration = Duration::from_secs(48 * 3_600);

/// Takes what is left over, until the engine is gone or the store stops.
pub(crate) async fn watch(inner: Weak<Inner>, store: Store) {
    let work = store.work(DIRECT);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let next = work.notified();
        for lane in store.lanes(Some(DIRECT)).into_iter().filter(|lane| lane.waiting > 0) {
            if !take(&inner, &store, &lane.name, &turns).await {
                return;
            }
        }
        let _something_or_nothing = timeout(ANYWAY, next).await;
        sleep(AFTER_WORK).await;
    }
}

/// Takes all of a lane. False: nothing more is to be taken.
async fn take(inner: &Weak<Inner>, store: &Store, lane: &LaneName, turns: &Arc<Semaphore>) -> bool {
    loop {
        let Ok(turn) = turns.clone().acquire_owned().await else { return false };
        let taken = store.take(TakeFrom { lane: lane.clone(), most: 1, lease: LEASE }).await;
        let items = match taken {
            Ok(Take::Items(items)) => items,
            Ok(Take::Nothing { .. }) => return true,
            Err(_) => return false,
        };
        let Some(inner) = inner.upgrade() else { return false };
        let (store, tenant) = (store.clone(), lane.tenant.clone());
        drop(tokio::spawn(async move {
            for leased in items {
                look_into(&inner, &store, &tenant, leased).await;
            }
            drop(turn);
        }));
    }
}

async fn look_into(inner: &Inner, store: &Store, tenant: &str, leased: Leased) {
    let live = inner.live.load_full();
    let Leased { lease, content, .. } = leased;
    let call = Content::decode(&content).map_err(|error| error.to_string()).and_then(|content| {
        let call = durable::call_of(&content, &live).map_err(|misfit| misfit.to_string())?;
        Ok((call, content.record_key()))
    });
    match call {
        Ok((call, key)) => {
            let claim = Claim::new(store.clone(), lease, key, true);
            settling::settle(inner, &call, claim, None).await;
        }
        Err(why) => {
            let detail = format!("The call was cut off after its write was sent, and nothing can tell whether it was done: {why}.");
            happened::outcome_unknown(&inner.telemetry, tenant, DIRECT, &lease.job().to_string());
            let ending = Ending::Unknown(Refusal::new(Code::OutcomeUnknown, detail));
            let job = lease.job().to_string();
            if let Err(error) = store.finish(lease, ending::end_of(&ending, KEEP, "")).await {
                happened::end_not_kept(&job, ending.state().name(), &error.to_string());
            }
        }
    }
}
