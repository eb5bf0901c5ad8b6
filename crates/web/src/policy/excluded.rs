//! Why a visitor gets neither script nor hints.

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
    /// Known to what stands in front of the proxy.
    #[error("the request says who sends it (`{0}`)")]
    Identified(&'static str),
    /// Perhaps signed in.
    #[error("the request carries a cookie that is not on the list of harmless ones")]
    Cookie,
    /// The user wants fewer bytes.
    #[error("the browser asks to save data (Save-Data)")]
    SaveData,
    /// A network that has nothing to spare.
    #[error("the browser's network is slow (ECT)")]
    SlowNetwork,
    /// A device that has nothing to spare.
    #[error("the device has little memory (Device-Memory)")]
    SmallDevice,
    /// A browser that would not use what it prefetched.
    #[error("the browser would not use what it fetched ahead, or is not known to")]
    Browser,
    /// Nobody who clicks.
    #[error("the client is a robot")]
    Robot,
}
