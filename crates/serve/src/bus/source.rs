//! A bus, as a server is told of it.
use mycroft_bus::Topic;
use std::fmt;
use std::sync::Arc;

/// Where a server has records from besides its wire.
#[derive(Clone)]
pub struct BusSource(pub Arc<dyn Topic>);

impl fmt::Debug for BusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BusSource").field(&self.0.name()).finish()
    }
}
