//! Variants of a congestion control that live as long as the process that wants them.

use std::mem::MaybeUninit;

use libbpf_rs::Link;

use crate::control::{Constants, Control};
use crate::error::{Error, Result};
use crate::machine;

/// A congestion control that is registered until this value is dropped, or its process ends,
/// however that happens. Sockets that run it then keep it until they are closed.
#[derive(Debug)]
pub struct Held {
    name: String,
    _link: Link,
}

impl Held {
    /// The name that sockets choose it by.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Registers a congestion control with any constants at all for as long as the returned value
/// lives. Nothing is pinned; for research and tests. What people use is [`crate::load`].
///
/// # Errors
/// Whatever keeps the kernel from taking it; nothing is left behind then.
pub fn hold(name: &str, constants: impl Into<Constants>) -> Result<Held> {
    machine::check_name(name)?;
    machine::check_privilege("loading a congestion control")?;
    machine::check_kernel()?;
    if machine::has_congestion(name)? {
        return Err(Error::NameTaken { name: name.to_owned() });
    }
    let mut object = MaybeUninit::uninit();
    let mut control = Control::load(&mut object, name, false, &constants.into())?;
    Ok(Held { name: name.to_owned(), _link: control.register()? })
}
