//! Leases of jobs, of servers that share a database. No server asks for one yet.
use super::Store;
use crate::error::StoreError;
use crate::meta::Leased;
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
}
