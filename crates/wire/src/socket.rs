//! A server's socket. What lies in the place of a unix socket is looked at before it is replaced or removed.
use crate::dir::own_uid;
use crate::stream::Stream;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Socket {
    /// Its descriptor.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }

    /// The next connection, and where it comes from; a unix socket does not tell.
    pub(super) fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        match self {
            Socket::Tcp(socket) => socket.accept().map(|(stream, from)| {
                // Without it an acknowledgement waits 40 ms; it works without.
                let _ = stream.set_nodelay(true);
                (Stream::tcp(stream), Some(from.ip()))
            }),
            Socket::Unix(socket) => socket.accept().map(|(stream, _)| (Stream::unix(stream), None)),
        }
    }
}

/// The file that a bound socket has made.
#[derive(Debug)]
pub(super) struct Made {
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

/// Binds with mode 0600. A socket of this user on which nobody listens is replaced.
pub(super) fn bind_unix(path: &Path) -> io::Result<(UnixListener, Made)> {
    make_room(path)?;
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let meta = std::fs::symlink_metadata(path)?;
    Ok((socket, Made { path: path.to_owned(), file: (meta.dev(), meta.ino()) }))
}

fn make_room(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let taken = |what: String| Err(io::Error::new(ErrorKind::AddrInUse, what));
    if !meta.file_type().is_socket() {
        return taken("the file that lies there is no socket; give another path, or remove it".to_owned());
    }
    if meta.uid() != own_uid() {
        return taken(format!("the socket that lies there belongs to user {}; give another path", meta.uid()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Ok(_) => taken("another server listens there".to_owned()),
        Err(error) => Err(error),
    }
}

impl Made {
    /// Removes the file, if it is still the one that was made.
    pub(super) fn remove(self) {
        let same = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(same) {
            // It may be gone with its directory meanwhile.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
