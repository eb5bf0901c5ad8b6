//! Why a visitor gets neither the script nor hints.

use http::Method;

/// The reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excluded {
    /// Not a request for a page.
    #[error("the request is a {0}, only GET is safe to repeat")]
    Method(Method),
    /// Signed in by HTTP.
    #[error("the request carries credentials (Authorization)")]
    Authorization,
    /// Known to a system in front of the proxy.
    #[error("the request identifies its sender (`{0}`)")]
    Identified(&'static str),
    /// Perhaps signed in.
    #[error("the request carries a cookie that is not on the list of harmless ones")]
    Cookie,
    /// The user wants fewer bytes.
    #[error("the browser asks to save data (Save-Data)")]
    SaveData,
    /// A network without spare capacity.
    #[error("the browser's network is slow (ECT)")]
    SlowNetwork,
    /// A device without spare capacity.
    #[error("the device has little memory (Device-Memory)")]
    SmallDevice,
    /// A browser that would not use its prefetches.
    #[error("the browser does not use prefetched pages, or is unknown")]
    Browser,
    /// A robot, which never clicks.
    #[error("the client is a robot")]
    Robot,
}
