//! What a server needs of a bus: partitions that are read one by one, from where it says.
use mycroft_record::HostTime;
use std::time::Duration;

/// Why a bus cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{operation} {bus}: {reason}")]
pub struct BusError {
    /// What was being done.
    pub operation: &'static str,
    /// Of which bus.
    pub bus: String,
    /// Why it failed, and what to do.
    pub reason: String,
}

/// A topic.
pub trait Topic: Send + Sync {
    /// How it is named in messages and in the database of leases; the same for all servers of it.
    fn name(&self) -> String;

    /// How many partitions it has.
    ///
    /// # Errors
    /// No broker can be asked, or there is no such topic.
    fn partitions(&self) -> Result<u32, BusError>;

    /// A partition, to be read.
    ///
    /// # Errors
    /// It cannot be prepared; no broker is asked yet.
    fn part(&self, partition: u32) -> Result<Box<dyn Part>, BusError>;
}

/// Where reading begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// The first record to read.
    pub from: i64,
    /// Everything before is kept by a server; never below `from`.
    pub kept: i64,
    /// One behind the last record that there is now.
    pub end: i64,
}

/// A record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// Its place in the partition.
    pub offset: i64,
    /// When it came to the broker, or was given to the client, as the topic is set; `NONE`: not said.
    pub at: HostTime,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// A partition that is read.
pub trait Part: Send {
    /// Finds where to begin, to have everything since `since` and everything that no server has kept, and goes there.
    ///
    /// # Errors
    /// No broker can be asked.
    fn begin(&mut self, since: HostTime) -> Result<Begin, BusError>;

    /// The next record; `None`: none came within `wait`.
    ///
    /// # Errors
    /// What the broker says. Reading goes on with the next call.
    fn next(&mut self, wait: Duration) -> Result<Option<Fetched>, BusError>;

    /// One behind the last record that there is now. Asked also to know whether it is there, where nothing has come for a while.
    ///
    /// # Errors
    /// No broker answers.
    fn end(&mut self) -> Result<i64, BusError>;

    /// Reads on from there.
    ///
    /// # Errors
    /// What the client says.
    fn go_to(&mut self, offset: i64) -> Result<(), BusError>;

    /// Notes that everything before is kept.
    ///
    /// # Errors
    /// What the client says; what the broker says is not waited for.
    fn keep(&mut self, offset: i64) -> Result<(), BusError>;
}
