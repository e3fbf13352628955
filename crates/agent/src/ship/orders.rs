//! What the server asks for besides records: captures, and ranks to be held.
use super::{Link, POLL_EVERY, Shipper};
use mycroft_wire::WireError;
use std::time::Duration;

/// As often while ranks are held: their coordinator waits for an answer, and the job for it.
const HOLD_POLL: Duration = Duration::from_millis(3);

impl Shipper {
    /// Does what the server ordered, and hands over what that has brought so far.
    pub(super) fn do_orders(&mut self) -> Result<(), WireError> {
        let Link::Up(client) = &mut self.link else { return Ok(()) };
        if let Some(capturer) = &mut self.capturer {
            client.take_orders().into_iter().for_each(|order| capturer.begin(order));
            capturer.hand_over(|captured| client.send_captured(captured))?;
        }
        if let Some(holder) = &mut self.holder {
            let requests = client.take_gate_requests();
            let address = if requests.is_empty() { None } else { client.local_address() };
            requests.into_iter().for_each(|said| holder.take(said, address));
            holder.hand_over(|said| client.send_gate_answer(said))?;
        }
        Ok(())
    }

    /// Whether a coordinator of held ranks waits for answers.
    pub(super) fn holds(&self) -> bool {
        self.holder.as_ref().is_some_and(crate::hold::Holder::is_active)
    }

    /// How often the client is looked after.
    pub(super) fn poll_every(&self) -> Duration {
        if self.holds() { HOLD_POLL } else { POLL_EVERY }
    }

    /// The server is gone: nobody waits for an answer.
    pub(super) fn abandon_orders(&mut self) {
        self.capturer.iter_mut().for_each(crate::capture::Capturer::abandon);
        self.holder.iter_mut().for_each(crate::hold::Holder::abandon);
    }
}
