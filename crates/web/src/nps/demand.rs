//! A request of a visitor: its page gets the script, and what it does is taken note of.

use std::sync::Arc;

use http::{Method, request, response};

use super::Shared;
use super::munged::Munged;
use super::who::Who;
use crate::munge;
use crate::policy::{self, page_visitor};
use crate::proxy::{Body, Decision, Exchange};

struct Demand {
    shared: Arc<Shared>,
    /// As it goes upstream, but for the proxy's own rules for headers.
    request: request::Parts,
    who: Who,
    may_have_script: bool,
}

/// Lets a request pass, and looks at its reply.
pub(super) fn watch(shared: &Arc<Shared>, head: &mut request::Parts, who: Who) -> Decision {
    let visitor = page_visitor(&head.method, &head.headers, who.secure, &shared.harmless);
    let may_have_script = visitor.is_ok();
    if may_have_script && munge::is_document(&head.headers) {
        munge::widen_if_none_match(&mut head.headers);
    }
    Decision::Watch(Box::new(Demand {
        shared: Arc::clone(shared),
        request: head.clone(),
        who,
        may_have_script,
    }))
}

impl Exchange for Demand {
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let Demand { shared, request, who, may_have_script } = self;
        let munging =
            if *may_have_script { munge::decide(request, who.scheme(), head).ok() } else { None };
        // Nothing else is taken note of, and most replies need no lock then.
        if policy::offence(head).is_some() {
            shared.policy().observe(request, who.secure, who.client, head, shared.now());
        }
        match munging {
            Some(munging) => {
                munging.rewrite_head(&mut head.headers);
                if request.method == Method::HEAD {
                    return body;
                }
                Munged::body(shared, &request.uri, munging.munger(), body)
            }
            None => {
                if *may_have_script {
                    munge::revalidated(request, who.scheme(), head);
                }
                body
            }
        }
    }
}
