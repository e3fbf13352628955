//! What goes into a connection and comes out of it.

/// Packets on their way at most: 64 of 4 KiB are 256 KiB, which a socket's buffer takes from several connections.
pub const WINDOW_PACKETS: u32 = 64;

/// Where a queue pair stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Made.
    Reset,
    /// Takes receives.
    Init,
    /// Receives.
    ReadyToReceive,
    /// Receives and sends.
    ReadyToSend,
    /// Does nothing any more; what is posted is flushed.
    Error,
}

/// How patient the sender is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Retry {
    /// Nanoseconds without an answer until it sends again; none: it waits for ever.
    pub timeout_ns: Option<u64>,
    /// How often it sends again without progress.
    pub count: u8,
    /// How often it comes back to a receiver that was not ready; 7: always.
    pub not_ready: u8,
}

/// What a connection is told when it is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// The queue pair of the other end.
    pub peer: u32,
    /// Most bytes of data in a packet.
    pub mtu_bytes: u32,
    /// The number of the first packet that comes.
    pub receive_psn: u32,
    /// The number of the first packet that goes.
    pub send_psn: u32,
    /// Patience of the sender.
    pub retry: Retry,
    /// The code of the time that a sender waits where no receive is posted ([`rnr_ns`]).
    pub not_ready_code: u8,
    /// The other end may write into memory here.
    pub may_write: bool,
}

/// A piece of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it begins.
    pub address: u64,
    /// How long it is.
    pub bytes: u32,
    /// The local key.
    pub key: u32,
}

/// What a request sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// Copied when it was posted.
    Inline(Vec<u8>),
    /// Read each time a packet goes.
    Pieces(Vec<Piece>),
}

impl Data {
    /// Bytes in all.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            Data::Inline(bytes) => bytes.len() as u32,
            Data::Pieces(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
        }
    }

    /// Appends `bytes` from `offset` on to `out`; false where memory may not be read.
    pub(super) fn append(&self, offset: u32, bytes: u32, memory: &dyn Memory, out: &mut Vec<u8>) -> bool {
        match self {
            Data::Inline(all) => match all.get(offset as usize..(offset + bytes) as usize) {
                Some(part) => {
                    out.extend_from_slice(part);
                    true
                }
                None => false,
            },
            Data::Pieces(pieces) => {
                let append = |piece: Piece, out: &mut Vec<u8>| memory.append(piece, out);
                each_piece(pieces, offset, bytes, |piece, _| append(piece, out))
            }
        }
    }
}

/// The parts of `pieces` that hold `bytes` from `offset` on, each with its place among those bytes; false where `visit`
/// says so or they are too short.
pub(super) fn each_piece(
    pieces: &[Piece],
    offset: u32,
    bytes: u32,
    mut visit: impl FnMut(Piece, usize) -> bool,
) -> bool {
    let (mut skip, mut left) = (offset, bytes);
    for piece in pieces {
        if left == 0 {
            break;
        }
        let from = skip.min(piece.bytes);
        skip -= from;
        let take = left.min(piece.bytes - from);
        if take > 0 {
            let part = Piece { address: piece.address.wrapping_add(u64::from(from)), bytes: take, key: piece.key };
            if !visit(part, (bytes - left) as usize) {
                return false;
            }
            left -= take;
        }
    }
    left == 0
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Fills a receive of the other end.
    Send,
    /// Writes at an address of the other end, under its key.
    Write {
        /// Where.
        address: u64,
        /// The key.
        key: u32,
    },
}

/// A request as posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Send {
    /// The program's number.
    pub id: u64,
    /// What it does.
    pub request: Request,
    /// Its data.
    pub data: Data,
    /// Four bytes for the receiver's completion.
    pub immediate: Option<[u8; 4]>,
    /// The program wants to hear of success.
    pub signaled: bool,
}

/// A receive as posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receive {
    /// The program's number.
    pub id: u64,
    /// Where data goes.
    pub pieces: Vec<Piece>,
}

/// Which work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A receive that a send filled.
    Receive,
    /// A receive that a write with immediate data took.
    ReceiveWrite,
}

/// How work ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Well.
    Success,
    /// The receive was too short for the message.
    LocalLength,
    /// The local key does not allow it.
    LocalProtection,
    /// The queue pair failed before its turn.
    Flushed,
    /// The other end says that the request makes no sense.
    RemoteInvalid,
    /// The other end's key does not allow it.
    RemoteAccess,
    /// The other end failed.
    RemoteOperation,
    /// No answer, however often it was sent.
    RetryExceeded,
    /// No receive was posted, however often it was tried.
    NotReadyExceeded,
}

/// Work that is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The program's number.
    pub id: u64,
    /// Which work.
    pub work: Work,
    /// How it ended.
    pub status: Status,
    /// Bytes, of receives that went well.
    pub bytes: u32,
    /// Of receives: what the sender gave.
    pub immediate: Option<[u8; 4]>,
}

impl Completion {
    /// It belongs to the receive queue.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        matches!(self.work, Work::Receive | Work::ReceiveWrite)
    }
}

/// What the program is told without asking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The queue pair failed.
    Fatal,
    /// The other end sent what makes no sense.
    InvalidRequest,
    /// The other end wanted memory that it may not have.
    Access,
}

/// Registered memory, as a connection uses it.
pub trait Memory {
    /// Appends the bytes of a piece to `out`; false where its key does not allow it.
    fn append(&self, piece: Piece, out: &mut Vec<u8>) -> bool;
    /// Puts `bytes` into a local piece of as many bytes; false where its key does not allow it.
    fn fill(&self, piece: Piece, bytes: &[u8]) -> bool;
    /// Whether the other end may write `piece`, under its remote key.
    fn may_write(&self, piece: Piece) -> bool;
    /// Writes for the other end, in ascending order; false where the key does not allow it.
    fn write(&self, piece: Piece, bytes: &[u8]) -> bool;
}

/// The times of the codes in "receiver not ready", in units of 10 us (InfiniBand Architecture Specification, volume 1,
/// table 46).
const RNR_10_US: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072,
    4_096, 6_144, 8_192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// Nanoseconds of a code in "receiver not ready".
#[must_use]
pub fn rnr_ns(code: u8) -> u64 {
    u64::from(RNR_10_US[usize::from(code & 0x1f)]) * 10_000
}
