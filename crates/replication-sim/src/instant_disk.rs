//! A disk that stores everything at once, and never fails.

use lull_replication::BodyEffect;
use lull_replication::origin::{Effect, Origin};
use lull_replication::time::Reading;

/// Carries out all that the origin requests of its disk.
pub(crate) fn carry_out(origin: &mut Origin<()>, now: Reading) {
    while let Some(effect) = origin.poll_effect() {
        match effect {
            Effect::Body(BodyEffect::Store(payload)) => {
                origin.handle_stored(now, &payload.digest, Ok(()));
            }
            Effect::Body(BodyEffect::Drop(digest)) => origin.handle_dropped(now, &digest),
            Effect::Append(_) => origin.handle_appended(now, Ok(())),
        }
    }
}
