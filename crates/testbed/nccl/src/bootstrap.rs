//! Finding each other: a root that gathers one blob from every rank and hands all of them back, round after round.
//!
//! The unique id carries the root's address and a random key. The root is a thread of the process that called
//! `ncclGetUniqueId` (or of the lowest rank of a split); it ends when its communicator's last connection closes.
//!
//! Hello of a rank: magic, key, rank, ranks, 8 bytes each. A round: length (u32) and blob from every rank; then from
//! the root to every rank, for each rank in order, length and blob.

use crate::abi::{Code, Fault, Res, UniqueId};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

const MAGIC: u64 = u64::from_le_bytes(*b"MTBBOOT1");
/// Most bytes a rank may contribute to one round.
pub const BLOB_BYTES_MAX: usize = 64 * 1024;
/// Most ranks of one communicator.
pub const RANKS_MAX: usize = 4096;

/// Where a root listens, and the key that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootAddr {
    /// Address and port.
    pub addr: SocketAddr,
    /// Random; tells this communicator from all others.
    pub key: u64,
}

impl RootAddr {
    /// The unique id that names this root.
    pub fn to_unique_id(self) -> UniqueId {
        let text = format!("{:016x}{:016x}{}", MAGIC, self.key, self.addr);
        let mut id = UniqueId { internal: [0; 128] };
        for (slot, byte) in id.internal.iter_mut().zip(text.bytes()) {
            *slot = byte as std::ffi::c_char;
        }
        id
    }

    /// Reads a unique id that [`RootAddr::to_unique_id`] made.
    ///
    /// # Errors
    /// The id was not made by this library.
    pub fn from_unique_id(id: &UniqueId) -> Res<RootAddr> {
        let bytes: Vec<u8> = id.internal.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
        let parse = || {
            let text = std::str::from_utf8(&bytes).ok()?;
            let magic = u64::from_str_radix(text.get(0..16)?, 16).ok()?;
            let key = u64::from_str_radix(text.get(16..32)?, 16).ok()?;
            let addr = text.get(32..)?.parse().ok()?;
            (magic == MAGIC).then_some(RootAddr { addr, key })
        };
        parse().ok_or_else(|| {
            Fault::new(Code::InvalidArgument, "the unique id was not made by ncclGetUniqueId of this library")
        })
    }
}

/// A random 64-bit number from the kernel.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is 8 bytes long and getrandom writes at most that.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) };
    if got == 8 {
        u64::from_ne_bytes(bytes)
    } else {
        crate::clock::monotonic_ns() ^ (u64::from(std::process::id()) << 32)
    }
}

/// Starts a root on `ip` and says where it is. Its thread waits for the ranks.
///
/// # Errors
/// No port or no thread can be had.
pub fn start_root(ip: IpAddr) -> Res<RootAddr> {
    let listener = TcpListener::bind((ip, 0)).map_err(|e| Fault::system(&format!("bootstrap root on {ip}"), &e))?;
    let addr = listener.local_addr().map_err(|e| Fault::system("bootstrap root address", &e))?;
    let key = random_u64();
    std::thread::Builder::new()
        .name("mtb-root".into())
        .spawn(move || {
            if let Err(e) = serve(&listener, key) {
                crate::log::info(&format!("bootstrap root ended: {e}"));
            }
        })
        .map_err(|e| Fault::system("bootstrap root thread", &e))?;
    Ok(RootAddr { addr, key })
}

/// Accepts every rank, then serves rounds until somebody leaves.
fn serve(listener: &TcpListener, key: u64) -> io::Result<()> {
    let mut links: Vec<Option<TcpStream>> = Vec::new();
    let mut missing = usize::MAX;
    while missing > 0 {
        let (mut link, _) = listener.accept()?;
        link.set_nodelay(true)?;
        // A stranger that connects and says nothing must not hold up the job.
        link.set_read_timeout(Some(std::time::Duration::from_secs(10)))?;
        let Ok((rank, ranks)) = read_hello(&mut link, key) else { continue };
        link.set_read_timeout(None)?;
        if links.is_empty() {
            links.resize_with(ranks, || None);
            missing = ranks;
        }
        if ranks != links.len() || links[rank].is_some() {
            return Err(io::Error::other(format!("rank {rank} of {ranks} does not fit the communicator")));
        }
        links[rank] = Some(link);
        missing -= 1;
    }
    let mut links: Vec<TcpStream> = links.into_iter().flatten().collect();
    loop {
        let mut all = Vec::new();
        for link in &mut links {
            let blob = read_blob(link)?;
            write_blob(&mut all, &blob)?;
        }
        for link in &mut links {
            link.write_all(&all)?;
        }
    }
}

fn read_hello(link: &mut TcpStream, key: u64) -> io::Result<(usize, usize)> {
    let mut words = [0u64; 4];
    for word in &mut words {
        let mut bytes = [0u8; 8];
        link.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    let (rank, ranks) = (words[2] as usize, words[3] as usize);
    if words[0] != MAGIC || words[1] != key || ranks > RANKS_MAX || rank >= ranks {
        return Err(io::Error::other("not a rank of this communicator"));
    }
    Ok((rank, ranks))
}

fn read_blob(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut len = [0u8; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > BLOB_BYTES_MAX {
        return Err(io::Error::other(format!("a blob of {len} bytes, at most {BLOB_BYTES_MAX}")));
    }
    let mut blob = vec![0; len];
    from.read_exact(&mut blob)?;
    Ok(blob)
}

fn write_blob(to: &mut impl Write, blob: &[u8]) -> io::Result<()> {
    let len = u32::try_from(blob.len()).map_err(io::Error::other)?;
    to.write_all(&len.to_le_bytes())?;
    to.write_all(blob)
}

/// One rank's end: all-gathers through the root.
#[derive(Debug)]
pub struct Bootstrap {
    link: TcpStream,
    ranks: usize,
}

impl Bootstrap {
    /// Joins the communicator at `root` as `rank` of `ranks`, speaking from `ip`.
    ///
    /// # Errors
    /// The root cannot be reached, or refuses the rank.
    pub fn join(root: RootAddr, rank: usize, ranks: usize) -> Res<Bootstrap> {
        let connect = || -> io::Result<TcpStream> {
            let mut link = TcpStream::connect(root.addr)?;
            link.set_nodelay(true)?;
            let mut hello = Vec::with_capacity(32);
            for word in [MAGIC, root.key, rank as u64, ranks as u64] {
                hello.extend_from_slice(&word.to_le_bytes());
            }
            link.write_all(&hello)?;
            Ok(link)
        };
        let link = connect().map_err(|e| Fault::system(&format!("joining the bootstrap root {}", root.addr), &e))?;
        Ok(Bootstrap { link, ranks })
    }

    /// Gives `mine`, gets everybody's in rank order. Blocks until every rank has called it.
    ///
    /// # Errors
    /// A rank is gone, or the root is.
    pub fn all_gather(&mut self, mine: &[u8]) -> Res<Vec<Vec<u8>>> {
        let mut round = || -> io::Result<Vec<Vec<u8>>> {
            let mut out = Vec::with_capacity(mine.len() + 4);
            write_blob(&mut out, mine)?;
            self.link.write_all(&out)?;
            let mut reader = io::BufReader::new(&self.link);
            (0..self.ranks).map(|_| read_blob(&mut reader)).collect()
        };
        round().map_err(|e| {
            Fault::new(Code::RemoteError, format!("bootstrap all-gather: {e}; a peer ended or was refused"))
        })
    }

    /// Blocks until every rank has come here.
    ///
    /// # Errors
    /// A rank is gone, or the root is.
    pub fn barrier(&mut self) -> Res<()> {
        self.all_gather(&[]).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_give_everybody_everything() {
        let root = start_root(IpAddr::from([127, 0, 0, 1])).unwrap();
        assert_eq!(RootAddr::from_unique_id(&root.to_unique_id()).unwrap(), root);
        std::thread::scope(|s| {
            for rank in 0..5usize {
                s.spawn(move || {
                    let mut b = Bootstrap::join(root, rank, 5).unwrap();
                    for round in 0..3u8 {
                        let got = b.all_gather(&vec![round; rank]).unwrap();
                        assert_eq!(got, (0..5).map(|r| vec![round; r]).collect::<Vec<_>>());
                    }
                    b.barrier().unwrap();
                });
            }
        });
    }

    #[test]
    fn a_foreign_id_is_refused() {
        let id = UniqueId { internal: [65; 128] };
        assert_eq!(RootAddr::from_unique_id(&id).unwrap_err().code, Code::InvalidArgument);
    }
}
