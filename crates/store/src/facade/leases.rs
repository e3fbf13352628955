//! What servers share that share a database: leases, and cases that move from one to another.
use super::Store;
use crate::error::StoreError;
use crate::meta::{CaseRow, Lease, Leased, identity};
use mycroft_wire::sync::lock;
use std::time::Duration;

impl Store {
    /// Takes a job for `holder`: one that nobody has, or whose lease is over; one's own begins anew. Refused while the database cannot
    /// be used, as are the others: what stands in for it is nobody else's.
    ///
    /// # Errors
    /// When the database says no, or cannot be asked.
    pub fn take_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, StoreError> {
        self.meta.ask_itself(|meta| meta.take_lease(job, holder, length))
    }

    /// Lengthens the lease of `holder` to `length` from now, which is not over yet.
    ///
    /// # Errors
    /// As `take_lease`.
    pub fn renew_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, StoreError> {
        self.meta.ask_itself(|meta| meta.renew_lease(job, holder, length))
    }

    /// Gives the lease of `holder` up; false: it is not its own any more.
    ///
    /// # Errors
    /// As `take_lease`.
    pub fn release_lease(&self, job: &str, holder: &str) -> Result<bool, StoreError> {
        self.meta.ask_itself(|meta| meta.release_lease(job, holder))
    }

    /// Leases that are not over, of jobs whose names begin so.
    ///
    /// # Errors
    /// As `take_lease`.
    pub fn leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        self.meta.ask_itself(|meta| meta.leases(prefix))
    }

    /// Makes the cases with shared numbers ([`SHARED_FROM`](crate::meta::SHARED_FROM)) of all jobs that `is_wanted` this store's,
    /// whosever they were, and gives them, newest first.
    ///
    /// # Errors
    /// As `take_lease`.
    pub fn claim_cases(&self, is_wanted: &dyn Fn(&str) -> bool, limit: usize) -> Result<Vec<CaseRow>, StoreError> {
        self.meta.ask_shared(|meta| meta.claim_cases(is_wanted, limit))
    }

    /// The highest number of a case in `[from, to)` that any store of the database has; 0: none has one.
    ///
    /// # Errors
    /// As `take_lease`.
    pub fn highest_case(&self, from: u64, to: u64) -> Result<u64, StoreError> {
        self.meta.ask_shared(|meta| meta.highest_case(from, to))
    }

    /// The name of this store, which its folder keeps.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn name(&self) -> Result<String, StoreError> {
        let dir = lock(&self.disk).dir().to_owned();
        Ok(identity::of(&dir)?)
    }
}
