//! Compression of prefetched answers, by a thread that runs only while a processor has nothing else to do.
//!
//! A server that compresses a page cannot be interrupted, so a request of a visitor waits behind a prefetch. But
//! compression is most of the work for many pages. So a prefetch asks a server nearby for an uncompressed answer.
//! Here the kernel interrupts the compression as soon as anything else is to be done (`SCHED_IDLE`).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    HeaderMap, HeaderValue, RANGE,
};
use http::{StatusCode, response};
use http_body::{Body as HttpBody, Frame};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::sync::oneshot;

use super::body::{Body, BoxError};
use crate::content_coding::{self, Coding, Encoder};

/// Bytes that go to the thread at a time.
const CHUNK: usize = 64 << 10;
/// A shorter body does not become much shorter.
const MIN_BYTES: u64 = 512;

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
pub(crate) struct IdleCompressor(mpsc::Sender<Job>);

impl IdleCompressor {
    /// Starts the thread; `None` if the system refuses one.
    pub(crate) fn start() -> Option<Self> {
        let (jobs, receiver) = mpsc::channel();
        let thread = thread::Builder::new().name("lull-compress".into());
        thread.spawn(move || run(&receiver)).ok()?;
        Some(IdleCompressor(jobs))
    }
}

fn run(jobs: &mpsc::Receiver<Job>) {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    // Without it, the thread is an ordinary one.
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    while let Ok(job) = jobs.recv() {
        // The client may have gone meanwhile.
        if !job.done.is_closed() {
            let _ = job.done.send(compress(job.encoder, &job.input, job.is_last));
        }
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

/// A request that asks for an uncompressed answer, which its client gets compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenOver(Coding);

impl TakenOver {
    /// Changes the headers of a prefetch, if its client takes a compressed answer.
    pub(crate) fn request(headers: &mut HeaderMap) -> Option<Self> {
        if headers.contains_key(RANGE) || forbids_changes(headers) {
            return None;
        }
        let coding = Coding::for_client(headers)?;
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        Some(TakenOver(coding))
    }

    /// The answer for the client: compressed, if that makes it shorter.
    pub(crate) fn answer(
        self,
        compressor: &IdleCompressor,
        head: &mut response::Parts,
        body: Body,
    ) -> Body {
        let TakenOver(coding) = self;
        let Some(encoder) = Encoder::new(coding).filter(|_| is_worth_it(head, &body)) else {
            return body;
        };
        content_coding::forget_bytes(&mut head.headers);
        coding.state(&mut head.headers);
        let state = State::Reading { encoder, input: Vec::new(), bytes: 0 };
        Body::wrap(CompressedBody { body, compressor: compressor.clone(), state })
    }
}

fn forbids_changes(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL);
    values.iter().any(|value| {
        value.to_str().map_or(true, |value| value.to_ascii_lowercase().contains("no-transform"))
    })
}

/// Whether a server's answer is uncompressed text that may be changed.
pub(crate) fn may_change(head: &response::Parts) -> bool {
    let headers = &head.headers;
    head.status == StatusCode::OK
        && !headers.contains_key(CONTENT_ENCODING)
        && !headers.contains_key(CONTENT_RANGE)
        && !forbids_changes(headers)
        && headers.get(CONTENT_TYPE).is_some_and(is_text)
}

/// Whether what has become of it is text of some length.
fn is_worth_it(head: &response::Parts, body: &Body) -> bool {
    let headers = &head.headers;
    let says = |value: &HeaderValue| value.to_str().ok()?.parse::<u64>().ok();
    let bytes = body.size_hint().exact().or_else(|| headers.get(CONTENT_LENGTH).and_then(says));
    head.status == StatusCode::OK
        && !body.is_end_stream()
        && bytes.is_none_or(|bytes| bytes >= MIN_BYTES)
        && headers.get(CONTENT_TYPE).is_some_and(is_text)
}

/// Whether a media type is of text, which compresses well.
fn is_text(kind: &HeaderValue) -> bool {
    let kind = kind.to_str().unwrap_or("").split(';').next().unwrap_or("").trim();
    let kind = kind.to_ascii_lowercase();
    let of_application = ["javascript", "json", "xml", "manifest", "wasm"];
    // Events are to arrive one by one.
    (kind.starts_with("text/") && kind != "text/event-stream")
        || kind.starts_with("application/") && of_application.iter().any(|end| kind.ends_with(end))
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
}

/// A body on its way through the thread.
struct CompressedBody {
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
        self.compressor.0.send(job).map_err(ended)?;
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
    use crate::content_coding::Decoder;

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

    fn answer_head(kind: &'static str) -> response::Parts {
        let response = http::Response::builder().header(CONTENT_TYPE, kind).body(());
        response.expect("it is valid").into_parts().0
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn compressed_body_decodes_to_the_original(
            pieces in prop::collection::vec(prop::collection::vec(0_u8..4, 0..40_000), 0..8),
            coding in prop::sample::select(vec![Coding::Gzip, Coding::Zstd]),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build()?;
            let compressor = IdleCompressor::start().expect("a thread");
            let mut head = answer_head("text/html");
            let body = TakenOver(coding).answer(&compressor, &mut head, body_of(&pieces));
            let collected = runtime.block_on(body.collect()).map_err(|error| {
                TestCaseError::fail(error.to_string())
            })?;
            prop_assert_eq!(collected.trailers().map(HeaderMap::len), Some(1));
            prop_assert_eq!(decode(coding, &collected.to_bytes()), pieces.concat());
        }
    }

    #[test]
    fn only_text_counts_as_compressible() {
        for (kind, expected) in [
            ("text/html; charset=utf-8", true),
            ("Text/CSS", true),
            ("application/javascript", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("text/event-stream", false),
            ("image/png", false),
            ("application/zip", false),
        ] {
            assert_eq!(may_change(&answer_head(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn request_is_unchanged_unless_its_client_takes_codings() {
        for (fields, expected) in [
            (&[("accept-encoding", "gzip, zstd")][..], Some(Coding::Zstd)),
            (&[("accept-encoding", "gzip, br")], Some(Coding::Gzip)),
            (&[("accept-encoding", "br")], None),
            (&[], None),
            (&[("accept-encoding", "gzip"), ("range", "bytes=0-1")], None),
            (&[("accept-encoding", "gzip"), ("cache-control", "no-transform")], None),
        ] {
            let fields = fields.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            });
            let before = HeaderMap::from_iter(fields);
            let mut after = before.clone();
            let taken_over = TakenOver::request(&mut after);
            assert_eq!(taken_over, expected.map(TakenOver));
            assert_eq!(after == before, expected.is_none(), "{after:?}");
        }
    }
}
