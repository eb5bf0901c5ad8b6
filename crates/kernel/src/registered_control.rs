//! Variants of a congestion control that exist while the process that loaded them runs.

use std::mem::MaybeUninit;

use libbpf_rs::Link;

use crate::constants::Constants;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::machine;

/// A congestion control that is registered until this value is dropped, or its process ends in any way.
/// Sockets that use it then keep it until they are closed.
#[derive(Debug)]
pub struct RegisteredControl {
    name: String,
    _link: Link,
}

impl RegisteredControl {
    /// The name by which sockets choose it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Registers a congestion control with any constants until the returned value is dropped. Nothing is pinned;
/// for research and tests. Users load with [`crate::load`].
///
/// # Errors
/// If the kernel refuses it; nothing stays loaded then.
pub fn register_control(name: &str, constants: impl Into<Constants>) -> Result<RegisteredControl> {
    machine::check_name(name)?;
    machine::check_privilege("loading a congestion control")?;
    machine::check_kernel()?;
    if machine::has_congestion(name)? {
        return Err(Error::NameTaken { name: name.to_owned() });
    }
    let mut object = MaybeUninit::uninit();
    let mut control = Control::load(&mut object, name, false, &constants.into())?;
    Ok(RegisteredControl { name: name.to_owned(), _link: control.register()? })
}
