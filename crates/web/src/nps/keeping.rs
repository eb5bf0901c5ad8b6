//! What was learned is kept beyond the end of the program, on a disk that may be full.

use std::io;

use lull_speculate::model::Model;

use crate::proxy::Event;

/// Keeps a model beyond the end of the program. Where it cannot, what was kept before has to be there
/// still, and the error says in one line what is wrong, and with what.
pub type Save = Box<dyn FnMut(&Model) -> io::Result<()> + Send>;

/// Whether what was learned is kept, and who knows if not.
pub(super) struct Keeping {
    save: Option<Save>,
    is_kept: bool,
    is_told: bool,
}

impl Keeping {
    /// By `save`; without it nothing is kept.
    pub(super) fn new(save: Option<Save>) -> Self {
        Keeping { save, is_kept: false, is_told: false }
    }

    /// Something was learned since.
    pub(super) fn learned(&mut self) {
        self.is_kept = false;
    }

    /// Keeps what is not kept yet. What fails is tried again the next time, whether or not there is
    /// more by then, and told once until it works.
    pub(super) fn keep(&mut self, model: &Model, tell: impl FnOnce(&Event)) {
        let Some(save) = self.save.as_mut().filter(|_| !self.is_kept) else { return };
        let saved = save(model);
        self.is_kept = saved.is_ok();
        let was_told = std::mem::replace(&mut self.is_told, saved.is_err());
        if let Err(error) = saved
            && !was_told
        {
            tell(&Event::ModelUnsaved { why: error.to_string() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use lull_speculate::observe::{ClientHasher, Limits};
    use lull_speculate::predict::PpmParameters;

    use super::*;

    #[test]
    fn what_cannot_be_kept_is_told_once_and_tried_until_it_is() {
        let model =
            Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
        let (is_full, tried) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (full, count) = (Arc::clone(&is_full), Arc::clone(&tried));
        let mut keeping = Keeping::new(Some(Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            if full.load(Ordering::Relaxed) {
                return Err(io::Error::other("no room"));
            }
            Ok(())
        })));
        let mut told = Vec::new();
        // Whether there is room, whether something was learned; how often it was tried and told.
        for (room, learns, tries, tells) in [
            (false, false, 1, 1),
            (false, false, 2, 1),
            (false, true, 3, 1),
            (true, false, 4, 1),
            (true, false, 4, 1),
            (false, false, 4, 1),
            (false, true, 5, 2),
            (true, false, 6, 2),
            (true, true, 7, 2),
        ] {
            is_full.store(!room, Ordering::Relaxed);
            if learns {
                keeping.learned();
            }
            keeping.keep(&model, |event| told.push(event.clone()));
            assert_eq!((tried.load(Ordering::Relaxed), told.len()), (tries, tells));
        }
        assert_eq!(told[0], Event::ModelUnsaved { why: "no room".to_owned() });
    }
}
