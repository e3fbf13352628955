//! A bus between agents and servers, by flags.
use anyhow::{Context, Result};
use mycroft_bus::{BusAddress, BusSecurity, Sasl};
use std::path::PathBuf;

/// Flags of a bus.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct BusArgs {
    /// Records go by a topic of Kafka brokers instead of the wire, or, of a server, come by it as well:
    /// kafka://HOST:PORT[,HOST:PORT]/TOPIC. The topic must be there. Several servers of one topic share its partitions, and one
    /// --meta database. An agent on a bus has no connection to a server: it takes no stacks and dumps on order, holds no ranks, and
    /// its clock is not measured.
    #[arg(long, env = "MYCROFT_BUS", value_name = "URL")]
    pub(crate) bus: Option<String>,
    /// Certificate authority of the brokers (PEM): switches TLS on.
    #[arg(long, env = "MYCROFT_BUS_CA", value_name = "FILE", requires = "bus")]
    pub(crate) bus_ca: Option<PathBuf>,
    /// Own certificate (PEM), where brokers ask for one.
    #[arg(long, env = "MYCROFT_BUS_CERT", value_name = "FILE", requires_all = ["bus_ca", "bus_key"])]
    pub(crate) bus_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate for brokers.
    #[arg(long, env = "MYCROFT_BUS_KEY", value_name = "FILE", requires = "bus_cert")]
    pub(crate) bus_key: Option<PathBuf>,
    /// Name for brokers that ask for one (SASL).
    #[arg(long, env = "MYCROFT_BUS_USER", value_name = "NAME", requires_all = ["bus", "bus_password_file"])]
    pub(crate) bus_user: Option<String>,
    /// File that holds the password of --bus-user.
    #[arg(long, env = "MYCROFT_BUS_PASSWORD_FILE", value_name = "FILE", requires = "bus_user")]
    pub(crate) bus_password_file: Option<PathBuf>,
    /// How the password is shown to brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    #[arg(long, env = "MYCROFT_BUS_MECHANISM", default_value = "SCRAM-SHA-512", value_name = "NAME",
        value_parser = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])]
    pub(crate) bus_mechanism: String,
}

impl BusArgs {
    /// The bus that they name, and how it is entered.
    ///
    /// # Errors
    /// The address is none, or the file of the password cannot be used.
    fn read(&self) -> Result<Option<(BusAddress, BusSecurity)>> {
        let Some(url) = &self.bus else { return Ok(None) };
        let address = url.parse().context("--bus")?;
        let sasl = match self.bus_user.clone().zip(self.bus_password_file.as_ref()) {
            None => None,
            Some((user, path)) => {
                let password = crate::token::secret(path);
                let password = password.with_context(|| format!("--bus-password-file {}", path.display()))?;
                Some(Sasl { mechanism: self.bus_mechanism.clone(), user, password })
            }
        };
        let identity = self.bus_cert.clone().zip(self.bus_key.clone());
        Ok(Some((address, BusSecurity { ca_pem: self.bus_ca.clone(), identity, sasl })))
    }

    /// The way of an agent's records by it.
    ///
    /// # Errors
    /// As `read`; or this program knows no bus.
    pub(crate) fn way(&self) -> Result<Option<mycroft_wire::Way>> {
        self.read()?.map(|(address, security)| known::way(&address, &security)).transpose()
    }

    /// Where a server has records from.
    ///
    /// # Errors
    /// As `way`.
    pub(crate) fn source(&self) -> Result<Option<mycroft_serve::BusSource>> {
        self.read()?.map(|(address, security)| known::source(&address, &security)).transpose()
    }
}

#[cfg(feature = "kafka")]
mod known {
    use anyhow::{Context, Result};
    use mycroft_bus::{BusAddress, BusSecurity, kafka};
    use std::sync::Arc;

    pub(super) fn way(address: &BusAddress, security: &BusSecurity) -> Result<mycroft_wire::Way> {
        // Asked here for what this program was built without: the agent itself tries for ever.
        kafka::KafkaTopic::new(address, security).context("--bus")?;
        Ok(kafka::way(address, security))
    }

    pub(super) fn source(address: &BusAddress, security: &BusSecurity) -> Result<mycroft_serve::BusSource> {
        Ok(mycroft_serve::BusSource(Arc::new(kafka::KafkaTopic::new(address, security).context("--bus")?)))
    }
}

#[cfg(not(feature = "kafka"))]
mod known {
    use anyhow::{Result, bail};
    use mycroft_bus::{BusAddress, BusSecurity};

    pub(super) fn way(_: &BusAddress, _: &BusSecurity) -> Result<mycroft_wire::Way> {
        bail!("--bus: this program was built without a bus (cargo feature `kafka`)")
    }

    pub(super) fn source(_: &BusAddress, _: &BusSecurity) -> Result<mycroft_serve::BusSource> {
        bail!("--bus: this program was built without a bus (cargo feature `kafka`)")
    }
}
