//! Publications that replicas are to have by a deadline.

use std::time::Duration;

use lull_replication::path::Path;
use lull_replication::types::Sequence;

use super::{Client, ClientError, Done, Order};
use crate::daemon::DistributionStatus;

impl Client {
    /// The names of the replicas that match one of these names and patterns, in which `*` stands for any part.
    ///
    /// # Errors
    /// If the origin does not run, or one of them matches no replica that has joined and was not revoked.
    pub async fn matching(&self, patterns: &[String]) -> Result<Vec<String>, ClientError> {
        match self.order(&Order::Matching { patterns: patterns.to_vec() }).await? {
            Done::Names(names) => Ok(names),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Has the origin bring a state to these replicas within `limit`, with the files below `within` or all files.
    /// Returns a number for [`distribution`](Client::distribution). It goes on if this process ends.
    ///
    /// # Errors
    /// If the origin does not run, or one of the names is not that of a replica.
    pub async fn distribute(
        &self,
        names: &[String],
        sequence: Sequence,
        within: Option<&Path>,
        limit: Option<Duration>,
    ) -> Result<u64, ClientError> {
        let files = within.map_or_else(String::new, Path::to_string);
        let (names, seconds) = (names.to_vec(), limit.map(|limit| limit.as_secs_f64()));
        let order = Order::Distribute { names, sequence: sequence.0, files, seconds };
        match self.order(&order).await? {
            Done::Number(number) => Ok(number),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// How far it has arrived; none if the origin was started again since, or has forgotten it.
    ///
    /// # Errors
    /// If the origin does not run.
    pub async fn distribution(
        &self,
        number: u64,
    ) -> Result<Option<DistributionStatus>, ClientError> {
        match self.order(&Order::Distribution { number }).await? {
            Done::Distribution(status) => Ok(status),
            _ => Err(ClientError::Unexpected),
        }
    }
}
