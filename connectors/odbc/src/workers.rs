//! The fixed set of threads that wait inside the driver.
//!
//! Invariants
//! 1. At most `most` threads ever exist for a database. A thread that does not come back from its driver is not replaced: it is lost
//!    capacity, counted until it comes back.
//! 2. A session that was dropped is closed before its thread serves another: who wants that thread waits for it. Nobody waits for
//!    a lost one.
//! 3. A thread serves one session at a time, from its connect to its close, and takes one job at a time.
//! 4. A panic in a job costs its connection, not its thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use spillgate_connector::{DatabaseError, Failure};
use tokio::sync::{Notify, oneshot};

use crate::driver::{self, CancelPoint};
use crate::link::Link;

/// When a cancel is repeated if the thread has not come back: one that arrives before the statement is sent ends nothing. Not at
/// once, since IBM's driver makes its link anew after a cancel, which the next one would disturb; then twice as late each time.
const CANCEL_AGAIN: Duration = Duration::from_millis(500);
/// A driver that does not react to so many cancels will not react to more.
const CANCELS: u32 = 6;

type Job = Box<dyn FnOnce(&mut Option<Link>) + Send>;

/// The threads of one database.
pub(crate) struct Workers {
    most: usize,
    pool: Mutex<Pool>,
    given_back: Notify,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Worker>,
    started: usize,
    /// Closing a session that was dropped; back soon.
    closing: usize,
    /// In a driver call that nobody waits for any more.
    lost: usize,
}

struct Worker {
    jobs: SyncSender<Job>,
    state: Arc<WorkerState>,
}

/// What is seen of a thread from outside.
#[derive(Default)]
pub(crate) struct WorkerState {
    pub(crate) cancel: Arc<CancelPoint>,
    progress: Mutex<Progress>,
    came_back: Condvar,
    came_back_async: Notify,
}

#[derive(Default)]
struct Progress {
    busy: bool,
    since: Option<Instant>,
    finish: Finish,
}

/// How the last job ended, as far as its statement at the database is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The database answered: nothing of it runs any more.
    #[default]
    Answered,
    /// The driver gave up waiting; the database may work on.
    Unproven,
}

impl WorkerState {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn start(&self) {
        let mut progress = self.progress();
        progress.busy = true;
        progress.since = Some(Instant::now());
    }
    fn finish(&self, finish: Finish) {
        let mut progress = self.progress();
        progress.busy = false;
        progress.finish = finish;
        drop(progress);
        self.came_back.notify_all();
        self.came_back_async.notify_waiters();
    }
    /// Whether the thread is in a job.
    pub(crate) fn is_busy(&self) -> bool {
        self.progress().busy
    }
    /// How the last job ended, and when it began.
    pub(crate) fn last(&self) -> (Finish, Option<Instant>) {
        let progress = self.progress();
        (progress.finish, progress.since)
    }
    /// Waits until the thread has come back from its job.
    pub(crate) async fn idle(&self) {
        loop {
            let come_back = self.came_back_async.notified();
            tokio::pin!(come_back);
            come_back.as_mut().enable();
            if !self.is_busy() {
                return;
            }
            come_back.await;
        }
    }
    fn idle_within(&self, time: Duration) -> bool {
        let progress = self.progress();
        let (progress, _) =
            self.came_back.wait_timeout_while(progress, time, |progress| progress.busy).unwrap_or_else(PoisonError::into_inner);
        !progress.busy
    }
}

impl Workers {
    pub(crate) fn new(most: usize) -> Arc<Workers> {
        Arc::new(Workers { most: most.max(1), pool: Mutex::default(), given_back: Notify::new() })
    }
    /// Threads that are inside a driver call nobody waits for any more.
    pub(crate) fn lost(&self) -> usize {
        self.pool().lost
    }
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A thread for one session.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, DatabaseError> {
        loop {
            let given_back = self.given_back.notified();
            if let Some(worker) = self.take()? {
                worker.state.cancel.reset();
                return Ok(Lease { worker: Some(worker), workers: Arc::downgrade(self) });
            }
            given_back.await;
        }
    }
    /// `None`: one is on its way.
    fn take(&self) -> Result<Option<Worker>, DatabaseError> {
        let mut pool = self.pool();
        if let Some(worker) = pool.idle.pop() {
            return Ok(Some(worker));
        }
        if pool.started < self.most {
            let worker = start_worker()?;
            pool.started += 1;
            return Ok(Some(worker));
        }
        if pool.closing > 0 {
            return Ok(None);
        }
        let detail = "every driver thread of this database is held by a call that has not come back";
        Err(DatabaseError::new(Failure::Unreachable, detail, format!("{detail}: {} of {} are lost", pool.lost, self.most)))
    }
    fn leave(&self, lost: bool) {
        let mut pool = self.pool();
        pool.closing += usize::from(!lost);
        pool.lost += usize::from(lost);
    }
    fn give_back(&self, worker: Worker, lost: bool) {
        let mut pool = self.pool();
        pool.closing -= usize::from(!lost);
        pool.lost -= usize::from(lost);
        pool.idle.push(worker);
        drop(pool);
        self.given_back.notify_one();
    }
}

fn start_worker() -> Result<Worker, DatabaseError> {
    let (jobs, work) = sync_channel(1);
    let state = Arc::new(WorkerState::default());
    let started = thread::Builder::new().name("odbc".into()).spawn(move || serve(&work));
    match started {
        Ok(_runs_until_its_database_is_dropped) => Ok(Worker { jobs, state }),
        Err(error) => Err(DatabaseError::new(Failure::Unreachable, "the server has no thread left for the database", error.to_string())),
    }
}

fn serve(work: &Receiver<Job>) {
    let mut link = None;
    while let Ok(job) = work.recv() {
        let _in_the_driver = driver::enter();
        job(&mut link);
    }
    let _in_the_driver = driver::enter();
    drop(link);
}

/// A thread, held by one session. Dropped, it closes its connection by itself and goes back to the others.
pub(crate) struct Lease {
    worker: Option<Worker>,
    workers: Weak<Workers>,
}

impl Lease {
    /// The thread's state. (Every lease has one until it is dropped.)
    pub(crate) fn state(&self) -> Option<&Arc<WorkerState>> {
        self.worker.as_ref().map(|worker| &worker.state)
    }
    /// Runs work on the thread and waits for it. Dropping the wait leaves the thread at work.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Option<Link>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let Some(worker) = &self.worker else { return Err(failed_thread()) };
        let (reply, answer) = oneshot::channel();
        let state = worker.state.clone();
        state.start();
        let sent = worker.jobs.try_send(Box::new(move |link| {
            let result = catch_unwind(AssertUnwindSafe(|| work(link))).unwrap_or_else(|_panic| Err(failed_thread()));
            let finish = match &result {
                Err(error) if loses_sight(&error.failure) && !link.as_ref().is_some_and(|link| link.end_proven) => Finish::Unproven,
                _ => Finish::Answered,
            };
            if result.as_ref().is_err_and(|error| error.failure == Failure::Unfit) {
                *link = None;
            }
            state.finish(finish);
            let _nobody_waits_any_more = reply.send(result);
        }));
        if sent.is_err() {
            worker.state.finish(Finish::Answered);
            return Err(failed_thread());
        }
        answer.await.unwrap_or_else(|_| Err(failed_thread()))
    }
    /// Ends what the thread is in: from another thread, again and again, until it comes back.
    pub(crate) fn cancel(&self) {
        let Some(worker) = &self.worker else { return };
        worker.state.cancel.abandon();
        let state = worker.state.clone();
        let cancel = move || {
            for again in 0..CANCELS {
                if !state.is_busy() {
                    return;
                }
                {
                    let _in_the_driver = driver::enter();
                    state.cancel.cancel();
                }
                if state.idle_within(CANCEL_AGAIN * (1 << again)) {
                    return;
                }
            }
        };
        // Without a thread to cancel from, the statement's own limit ends it.
        let _started = thread::Builder::new().name("odbc-cancel".into()).spawn(cancel);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let lost = worker.state.is_busy();
        if let Some(workers) = self.workers.upgrade() {
            workers.leave(lost);
        }
        if lost {
            let returning = Lease { worker: Some(Worker { jobs: worker.jobs.clone(), state: worker.state.clone() }), workers: Weak::new() };
            returning.cancel();
            returning.forget();
        }
        let workers = self.workers.clone();
        let jobs = worker.jobs.clone();
        let give_back = move |link: &mut Option<Link>| {
            let closed = catch_unwind(AssertUnwindSafe(|| link.take().map(Link::close)));
            if !matches!(closed, Ok(None | Some(Ok(())))) {
                tracing::debug!("an ODBC connection could not be closed in good order");
            }
            if let Some(workers) = workers.upgrade() {
                workers.give_back(worker, lost);
            }
        };
        // The channel has room: a busy thread has taken its job out of it. Refused means that the thread is gone.
        let _sent = jobs.try_send(Box::new(give_back));
    }
}

impl Lease {
    /// Ends without giving the thread back: another lease does.
    fn forget(mut self) {
        self.worker = None;
    }
}

/// Whether the database may work on after this failure.
fn loses_sight(failure: &Failure) -> bool {
    matches!(failure, Failure::LinkLost | Failure::Ended | Failure::Unfit)
}

fn failed_thread() -> DatabaseError {
    DatabaseError::new(Failure::LinkLost, "the connection to the database was lost", "the driver thread failed")
}
