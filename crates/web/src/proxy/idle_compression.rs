//! Compression of prefetched answers, by a thread that runs only while a processor has nothing else to do.
//!
//! A server that compresses a page cannot be interrupted, so a request of a visitor waits behind a prefetch. But
//! compression is most of the work for many pages. So a prefetch asks a server nearby for an uncompressed answer.
//! Here the kernel interrupts the compression as soon as anything else is to be done (`SCHED_IDLE`).

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::sync::oneshot;

use super::body::{Body, BoxError};
use crate::content_coding::Encoder;

/// Bytes that go to the thread at a time.
const CHUNK: usize = 64 << 10;
/// Pieces that wait for the thread. With more, no processor is idle, and new prefetches are refused.
const MAX_WAITING: usize = 8;

/// A piece of a body for the thread.
struct Job {
    encoder: Encoder,
    input: Vec<Bytes>,
    is_last: bool,
    done: oneshot::Sender<io::Result<Compressed>>,
}

/// Its result.
struct Compressed {
    encoder: Encoder,
    output: Vec<u8>,
}

/// The thread. It ends when the last handle to it is dropped.
#[derive(Clone)]
pub(crate) struct IdleCompressor {
    jobs: mpsc::Sender<Job>,
    waiting: Arc<AtomicUsize>,
}

impl IdleCompressor {
    /// Starts the thread; `None` if the system refuses one.
    pub(crate) fn start() -> Option<Self> {
        let (jobs, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("lull-compress".into());
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        thread.spawn(move || run(&receiver, &counter)).ok()?;
        Some(IdleCompressor { jobs, waiting })
    }

    /// Whether the thread has had no time for what it was given.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MAX_WAITING
    }
}

fn run(jobs: &mpsc::Receiver<Job>, waiting: &AtomicUsize) {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Without it, the thread is an ordinary one.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    while let Ok(job) = jobs.recv() {
        // The client may have gone meanwhile.
        if !job.done.is_closed() {
            let _ = job.done.send(compress(job.encoder, &job.input, job.is_last));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn compress(mut encoder: Encoder, input: &[Bytes], is_last: bool) -> io::Result<Compressed> {
    let mut output = Vec::new();
    for piece in input {
        encoder.write(piece, &mut output)?;
    }
    if is_last {
        encoder.finish(&mut output)?;
    }
    Ok(Compressed { encoder, output })
}

/// A body on its way through the thread.
pub(crate) struct CompressedBody {
    body: Body,
    compressor: IdleCompressor,
    state: State,
}

/// ```text
///             CHUNK bytes, or the end                  the end
///   Reading ─────────────────────────▶ Compressing ──────────────▶ Trailers ──▶ Ended
///      ▲                                    │
///      └──────── there is more ─────────────┘
/// ```
enum State {
    Reading { encoder: Encoder, input: Vec<Bytes>, bytes: usize },
    Compressing { done: oneshot::Receiver<io::Result<Compressed>>, end: Option<Option<HeaderMap>> },
    Trailers(HeaderMap),
    Ended,
}

impl CompressedBody {
    pub(crate) fn new(body: Body, encoder: Encoder, compressor: &IdleCompressor) -> Self {
        let state = State::Reading { encoder, input: Vec::new(), bytes: 0 };
        CompressedBody { body, compressor: compressor.clone(), state }
    }

    /// Hands a piece over. `end` is the end of the body, with its trailers.
    fn compress(
        &self,
        encoder: Encoder,
        input: Vec<Bytes>,
        end: Option<Option<HeaderMap>>,
    ) -> Result<State, BoxError> {
        let (sender, done) = oneshot::channel();
        let job = Job { encoder, input, is_last: end.is_some(), done: sender };
        let ended = |_| io::Error::other("the compressing thread has ended");
        self.compressor.waiting.fetch_add(1, Ordering::Relaxed);
        self.compressor.jobs.send(job).map_err(ended)?;
        Ok(State::Compressing { done, end })
    }

    /// Takes what has arrived, and returns the next state.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        (encoder, mut input, mut bytes): (Encoder, Vec<Bytes>, usize),
    ) -> Poll<Result<State, BoxError>> {
        while bytes < CHUNK {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                self.state = State::Reading { encoder, input, bytes };
                return Poll::Pending;
            };
            match frame.transpose()?.map(Frame::into_data) {
                None => return Poll::Ready(self.compress(encoder, input, Some(None))),
                Some(Ok(data)) => {
                    bytes += data.len();
                    input.push(data);
                }
                Some(Err(frame)) => {
                    let trailers = frame.into_trailers().ok();
                    return Poll::Ready(self.compress(encoder, input, Some(trailers)));
                }
            }
        }
        Poll::Ready(self.compress(encoder, input, None))
    }
}

impl HttpBody for CompressedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Reading { encoder, input, bytes } => {
                    self.state = ready!(self.poll_read(cx, (encoder, input, bytes)))?;
                }
                State::Compressing { mut done, end } => {
                    let Poll::Ready(result) = Pin::new(&mut done).poll(cx) else {
                        self.state = State::Compressing { done, end };
                        return Poll::Pending;
                    };
                    let Compressed { encoder, output } = result??;
                    self.state = match end {
                        None => State::Reading { encoder, input: Vec::new(), bytes: 0 },
                        Some(Some(trailers)) => State::Trailers(trailers),
                        Some(None) => State::Ended,
                    };
                    if !output.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(output.into()))));
                    }
                }
                State::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Ended)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;

    use super::*;
    use crate::content_coding::{Coding, Decoder};
    use crate::proxy::inline_compression::InlineBody;
    use http::header::{CONTENT_TYPE, HeaderValue};

    /// A body of pieces, with trailers.
    fn body_of(pieces: &[Vec<u8>]) -> Body {
        let mut frames: Vec<Result<Frame<Bytes>, BoxError>> =
            pieces.iter().map(|piece| Ok(Frame::data(piece.clone().into()))).collect();
        let trailers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/a"))]);
        frames.push(Ok(Frame::trailers(trailers)));
        Body::wrap(StreamBody::new(Pieces(frames.into_iter())))
    }

    /// The pieces as a stream.
    struct Pieces(std::vec::IntoIter<Result<Frame<Bytes>, BoxError>>);

    impl futures_core::Stream for Pieces {
        type Item = Result<Frame<Bytes>, BoxError>;

        fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.next())
        }
    }

    fn decode(coding: Coding, mut input: &[u8]) -> Vec<u8> {
        let mut decoder = Decoder::new(coding).expect("it is a coding");
        let mut decoded = Vec::new();
        while let Some(step) = decoder.step(&mut input).expect("it is valid") {
            decoded.extend_from_slice(step);
        }
        assert!(decoder.is_complete());
        decoded
    }

    /// The thread is busy with a long piece: others wait.
    #[test]
    fn thread_without_time_is_behind() {
        let compressor = IdleCompressor::start().expect("a thread");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert!(!compressor.is_behind());
        let bodies: Vec<_> = (0..MAX_WAITING + 2)
            .map(|_| {
                let encoder = Encoder::new(Coding::Gzip).expect("it is a coding");
                let long = (0..CHUNK * 64).map(|at| ((at * at) >> 7) as u8).collect::<Vec<u8>>();
                CompressedBody::new(Body::full(long), encoder, &compressor)
            })
            .collect();
        let mut bodies: Vec<_> =
            bodies.into_iter().map(|body| Box::pin(Body::wrap(body))).collect();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for body in &mut bodies {
            assert!(body.as_mut().poll_frame(&mut cx).is_pending());
        }
        assert!(compressor.is_behind());
        for body in bodies {
            runtime.block_on(body.collect()).expect("it is compressed");
        }
        let begun = std::time::Instant::now();
        while compressor.is_behind() {
            assert!(begun.elapsed().as_secs() < 60);
            thread::yield_now();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn compressed_body_decodes_to_the_original(
            pieces in prop::collection::vec(prop::collection::vec(0_u8..4, 0..40_000), 0..8),
            coding in prop::sample::select(vec![Coding::Gzip, Coding::Zstd]),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            let compressor = IdleCompressor::start().expect("a thread");
            let encoder = || Encoder::new(coding).expect("it is a coding");
            let idle = CompressedBody::new(body_of(&pieces), encoder(), &compressor);
            let inline = InlineBody::new(body_of(&pieces), encoder());
            for body in [Body::wrap(idle), Body::wrap(inline)] {
                let collected = runtime.block_on(body.collect()).map_err(|error| {
                    TestCaseError::fail(error.to_string())
                })?;
                prop_assert_eq!(collected.trailers().map(HeaderMap::len), Some(1));
                prop_assert_eq!(decode(coding, &collected.to_bytes()), pieces.concat());
            }
        }
    }
}
