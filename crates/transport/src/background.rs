//! Streams together with their guards.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::carrier::Carrier;
use crate::error::Result;
use crate::guard::Guard;
use crate::user_space::UserSpaceNice;

/// A stream whose traffic is background traffic.
///
/// Reads, writes and all other functions are the stream's own. If it is dropped, it closes the stream; unsent
/// data is then sent in the background, too. For that, the user-space carrier keeps the connection open, for
/// at most two minutes without progress. The kernel has its own rules for orphaned connections
/// (`tcp_orphan_retries` of tcp(7)).
#[derive(Debug)]
pub struct Background<S> {
    stream: S,
    guard: ClosingGuard,
}

/// Controls the remaining data when stream and guard are dropped together.
#[derive(Debug)]
struct ClosingGuard(Option<Guard>);

impl Drop for ClosingGuard {
    fn drop(&mut self) {
        if let Some(guard) = &self.0 {
            guard.linger();
        }
    }
}

impl<S> Background<S> {
    pub(crate) fn new(stream: S, guard: Guard) -> Self {
        Background { stream, guard: ClosingGuard(Some(guard)) }
    }

    fn guard(&self) -> &Guard {
        self.guard.0.as_ref().expect("taken out only together with the stream")
    }

    /// The carrier of the connection.
    pub fn carrier(&self) -> Carrier {
        self.guard().carrier()
    }

    /// The present controller, if it runs in user space.
    pub fn user_space_nice(&self) -> Option<UserSpaceNice> {
        self.guard().user_space_nice()
    }

    /// The stream and its guard.
    pub fn into_parts(self) -> (S, Guard) {
        let Background { stream, mut guard } = self;
        let guard = guard.0.take().expect("taken out only together with the stream");
        (stream, guard)
    }

    /// The stream as a foreground one.
    ///
    /// # Errors
    /// The errors of [`Guard::into_foreground`]; the stream is closed then.
    pub fn into_foreground(self) -> Result<S>
    where
        S: AsFd,
    {
        let (stream, guard) = self.into_parts();
        guard.into_foreground(&stream)?;
        Ok(stream)
    }
}

impl<S> Deref for Background<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.stream
    }
}

impl<S> DerefMut for Background<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsFd> AsFd for Background<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: AsRawFd> AsRawFd for Background<S> {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

impl<S: Read> Read for Background<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read_vectored(buffers)
    }
}

impl<S: Write> Write for Background<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.write(buffer)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(buffers)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
