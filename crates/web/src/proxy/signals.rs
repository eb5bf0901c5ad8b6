//! A proxy that runs until a signal ends it.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::error::{Error, Result};
use super::server::Server;

/// How often it is checked whether all connections have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The signals that a proxy handles. Made before it starts, so that none of them ends the process in between.
#[derive(Debug)]
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    reopen: Signal,
    change: Signal,
}

impl Signals {
    /// Takes over SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2.
    ///
    /// # Errors
    /// [`Error::System`] if that is not possible.
    pub fn take() -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start an event loop"))?;
        let entered = runtime.enter();
        let take = |kind| signal(kind).map_err(Error::system("listen for signals"));
        let terminate = take(SignalKind::terminate())?;
        let interrupt = take(SignalKind::interrupt())?;
        let hang_up = take(SignalKind::hangup())?;
        // nginx reopens its logs on this signal, so users expect that.
        let reopen = take(SignalKind::user_defined1())?;
        let change = take(SignalKind::user_defined2())?;
        drop(entered);
        Ok(Signals { runtime, terminate, interrupt, hang_up, reopen, change })
    }

    /// Runs a proxy. SIGHUP and SIGUSR1 reload certificates and logs, and SIGHUP calls `reconfigure` first. SIGUSR2
    /// reports that the upstream changed. SIGTERM and SIGINT end it after the requests in progress, a second one at
    /// once.
    pub fn run(self, server: Server, mut reconfigure: impl FnMut(&Server)) {
        let Signals { runtime, mut terminate, mut interrupt, mut hang_up, mut reopen, mut change } =
            self;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = hang_up.recv() => {
                        reconfigure(&server);
                        server.reload();
                    }
                    _ = reopen.recv() => server.reload(),
                    _ = change.recv() => server.upstream_changed(),
                }
            }
            server.drain();
            let drained = async {
                while !server.is_drained() {
                    sleep(CHECK_INTERVAL).await;
                }
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = timeout(server.patience, drained) => {}
            }
        });
        server.stop();
    }
}
