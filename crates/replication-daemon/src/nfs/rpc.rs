//! Remote procedure calls over TCP (RFC 5531): records, calls and replies. Pure, except for [`read_record`].

use std::io;
use std::time::Duration;

use nfs3_types::xdr_codec::Pack;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The longest record: no call that a read-only server answers is longer, and a `WRITE` may end the connection.
const MAX_RECORD_BYTES: usize = 1 << 20;
/// The longest credentials (§8.2).
const MAX_CREDENTIAL_BYTES: usize = 400;
/// How long the rest of a record may take.
const RECORD: Duration = Duration::from_secs(30);
/// The last fragment of a record.
const LAST: u32 = 1 << 31;

/// A record: all of its fragments. None if the client has ended the connection.
///
/// # Errors
/// If the record is too long, takes too long, or the connection is lost.
pub(super) async fn read_record(
    reader: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<Vec<u8>>> {
    let mut record = Vec::new();
    let Ok(mut header) = reader.read_u32().await else { return Ok(None) };
    let rest = async {
        loop {
            let length = (header & !LAST) as usize;
            let begin = record.len();
            if begin + length > MAX_RECORD_BYTES {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            record.resize(begin + length, 0);
            reader.read_exact(&mut record[begin..]).await?;
            if header & LAST != 0 {
                return Ok(());
            }
            header = reader.read_u32().await?;
        }
    };
    timeout(RECORD, rest).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(Some(record))
}

/// The undecoded rest of a call, in XDR (RFC 4506).
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// Bytes of a length that comes first, at most `longest`.
    pub(super) fn opaque(&mut self, longest: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok().filter(|length| *length <= longest)?;
        let bytes = self.take(length)?;
        self.take(length.wrapping_neg() & 3)?;
        Some(bytes)
    }
}

/// The user of a call, as the client claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) user: u32,
    pub(super) groups: Vec<u32>,
}

impl Caller {
    /// A caller without credentials has the rights of all users only.
    pub(super) fn nobody() -> Self {
        const NOBODY: u32 = 65_534;
        Caller { user: NOBODY, groups: vec![NOBODY] }
    }

    /// `AUTH_SYS` (appendix A).
    fn read(body: &[u8]) -> Option<Self> {
        const MAX_GROUPS: u32 = 16;
        let mut input = Input(body);
        input.u32()?;
        input.opaque(255)?;
        let (user, group) = (input.u32()?, input.u32()?);
        let count = input.u32().filter(|count| *count <= MAX_GROUPS)?;
        let others = (0..count).map(|_| input.u32());
        let groups = std::iter::once(Some(group)).chain(others).collect::<Option<_>>()?;
        Some(Caller { user, groups })
    }
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is of another version of RPC.
    OtherRpc,
    NoProgram,
    /// The program has only this version.
    OtherVersion(u32),
    NoProcedure,
    /// The arguments cannot be decoded.
    Garbage,
    /// The result could not be encoded.
    Failed,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call<'a> {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    pub(super) caller: Caller,
    pub(super) arguments: Input<'a>,
}

impl<'a> Call<'a> {
    /// The number of the call, and the call; none if the record is no call.
    pub(super) fn read(record: &'a [u8]) -> Option<(u32, Result<Self, Refused>)> {
        let mut input = Input(record);
        let (xid, kind) = (input.u32()?, input.u32()?);
        if kind != 0 {
            return None;
        }
        Some((xid, Call::read_body(input)))
    }

    fn read_body(mut input: Input<'a>) -> Result<Self, Refused> {
        if input.u32().ok_or(Refused::Garbage)? != 2 {
            return Err(Refused::OtherRpc);
        }
        let mut next = || input.u32().ok_or(Refused::Garbage);
        let (program, version, procedure) = (next()?, next()?, next()?);
        let mut authentication = || {
            let flavor = input.u32()?;
            Some((flavor, input.opaque(MAX_CREDENTIAL_BYTES)?))
        };
        let credentials = authentication().ok_or(Refused::Garbage)?;
        authentication().ok_or(Refused::Garbage)?;
        let caller = match credentials {
            (1, body) => Caller::read(body).ok_or(Refused::Garbage)?,
            _ => Caller::nobody(),
        };
        Ok(Call { program, version, procedure, caller, arguments: input })
    }

    /// Rejects other versions of its program.
    pub(super) fn expect_version(&self, version: u32) -> Result<(), Refused> {
        if self.version == version { Ok(()) } else { Err(Refused::OtherVersion(version)) }
    }
}

/// A value as bytes.
pub(super) fn packed(value: &impl Pack) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::with_capacity(value.packed_size());
    value.pack(&mut bytes).map_err(|_| Refused::Failed)?;
    Ok(bytes)
}

/// The record of a reply.
pub(super) fn reply(xid: u32, result: Result<Vec<u8>, Refused>) -> Vec<u8> {
    // A reply that is accepted, without a verifier.
    const ACCEPTED: [u32; 4] = [1, 0, 0, 0];
    let (head, code, data) = match result {
        Ok(data) => (&ACCEPTED[..], &[0][..], data),
        Err(refused) => {
            let (head, words): (&[u32], &[u32]) = match refused {
                Refused::OtherRpc => (&[1, 1], &[0, 2, 2]),
                Refused::NoProgram => (&ACCEPTED, &[1]),
                Refused::OtherVersion(_) => (&ACCEPTED, &[2]),
                Refused::NoProcedure => (&ACCEPTED, &[3]),
                Refused::Garbage => (&ACCEPTED, &[4]),
                Refused::Failed => (&ACCEPTED, &[5]),
            };
            let data = match refused {
                Refused::OtherVersion(version) => [version.to_be_bytes(); 2].concat(),
                _ => Vec::new(),
            };
            (head, words, data)
        }
    };
    let length = 4 + 4 * (head.len() + code.len()) + data.len();
    let mut record = Vec::with_capacity(4 + length);
    let header = u32::try_from(length).unwrap_or(0) | LAST;
    let words = [header, xid].into_iter().chain(head.iter().copied()).chain(code.iter().copied());
    words.for_each(|word| record.extend_from_slice(&word.to_be_bytes()));
    record.extend_from_slice(&data);
    record
}
