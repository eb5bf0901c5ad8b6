//! A prefetch on its way: it waits for room at the upstream, is sent, and is sent again if demand has come
//! before its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use http::{Request, StatusCode, response};
use lull_speculate::scheduler::End;

use super::body::Body;
use super::connection::Connection;
use super::error::Failure;
use super::headers;
use super::reply::Account;
use super::request_body::RequestBody;
use super::scheduler::{PrefetchPriority, UpstreamPermit, UpstreamScheduler};
use super::spool;
use super::traffic_thread::TrafficThread;
use super::upstream::{self, Answer, UpstreamBody};
use super::upstream_access::UpstreamAccess;

/// The client of a prefetch, and its resources.
pub(crate) struct Sending<'a> {
    pub(crate) thread: &'a TrafficThread,
    pub(crate) upstream: &'a Arc<UpstreamAccess>,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) scheduler: &'a Arc<UpstreamScheduler>,
    pub(crate) priority: PrefetchPriority,
}

impl Sending<'_> {
    /// The answer, which is stored here if it is small: so a client does not see that it was aborted in
    /// between. Once it is awaited, it is demand like any other.
    ///
    /// # Errors
    /// [`Failure::NotNow`] if there was no room for too long; otherwise the upstream's failure.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
        account: &mut Account,
    ) -> Result<(response::Parts, Body), Failure> {
        let (begun, mut next) = (Instant::now(), Some(request));
        let path = next.as_ref().map_or_else(String::new, |one| one.uri().path().to_owned());
        while let Some(request) = next.take() {
            next = upstream::copy(&request);
            let upstream_permit = tokio::select! {
                biased;
                () = self.connection.is_hurried() => self.scheduler.demand(&path),
                upstream_permit = self.scheduler.prefetch(self.priority, begun.elapsed()) => upstream_permit?,
            };
            let result = if upstream_permit.is_prefetch() {
                self.attempt(self.upstream.for_prefetches(), request, upstream_permit, account)
                    .await
            } else {
                self.attempt(self.upstream, request, upstream_permit, account).await
            };
            match result {
                Err(Failure::NotNow) => {}
                result => return result,
            }
        }
        Err(Failure::NotNow)
    }

    /// Sends it once. [`Failure::NotNow`] means that it was aborted.
    async fn attempt(
        &self,
        upstream: &Arc<UpstreamAccess>,
        request: Request<RequestBody>,
        mut upstream_permit: UpstreamPermit,
        account: &mut Account,
    ) -> Result<(response::Parts, Body), Failure> {
        let Ok(permit) = Arc::clone(&self.thread.upstream_room).try_acquire_owned() else {
            return Err(Failure::Busy);
        };
        let patience = self.thread.config.timeouts.head;
        let path = request.uri().path().to_owned();
        let mut answer = pin!(upstream::send(upstream, request, None, patience));
        let answer = loop {
            tokio::select! {
                biased;
                () = upstream_permit.aborted() => return Err(Failure::NotNow),
                () = self.connection.is_hurried(), if upstream_permit.is_prefetch() => {
                    // A server of a lower priority would keep a visitor waiting: the other one is asked.
                    if !Arc::ptr_eq(upstream, self.upstream) {
                        return Err(Failure::NotNow);
                    }
                    upstream_permit = self.scheduler.demand(&path);
                }
                answer = &mut answer => break answer,
            }
        };
        let Answer { response, carrier, service, sent } = match answer {
            Ok(answer) => answer,
            Err(failure) => {
                upstream_permit.fail();
                return Err(failure);
            }
        };
        if upstream::is_upgrade(&response) {
            return Err(Failure::Garbage);
        }
        let is_refused = matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        upstream_permit.head(if is_refused { End::Failed } else { End::Served });
        account.note_first_byte(Some(sent));
        let (mut head, incoming) = response.into_parts();
        headers::to_client(&mut head, false).map_err(|_| Failure::Garbage)?;
        let body = UpstreamBody::new(
            incoming,
            (carrier, service),
            self.connection,
            permit,
            Some(Box::new(upstream_permit)),
        );
        Ok((head, spool::held(body, &self.thread.spools).await?))
    }
}
