//! The flag that names the configuration file, and the commands that look into it.
use clap::Subcommand;
use std::ffi::OsString;
use std::path::PathBuf;

/// The flag of each command that the file can configure: a command that has it has a table there.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ConfigArgs {
    /// File with flags of this command (TOML, see `mycroft config show --example`); default /etc/mycroft/mycroft.toml where it is
    /// there. A flag goes before its variable, that before the file. /dev/null: no file.
    #[arg(long, env = "MYCROFT_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Says what is in force and from where it came: flag, environment, file or default.
    ///
    /// Exit code 1 when something in the file is wrong, or what is in force does not go together.
    #[command(
        after_help = "Examples:\n  mycroft config check\n  mycroft config check ./mycroft.toml\n  mycroft config check -- serve --http 0.0.0.0:7701"
    )]
    Check(CheckArgs),
    /// Prints a file of all keys: what is in force stands there, defaults are comments.
    #[command(after_help = "Example: mycroft config show --example > mycroft.toml")]
    Show(ShowArgs),
}

#[derive(clap::Args, Debug)]
pub(crate) struct CheckArgs {
    /// The file; default /etc/mycroft/mycroft.toml.
    #[arg(env = "MYCROFT_CONFIG")]
    pub(crate) file: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// A command and its flags, as it would be started; default each command without flags.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) started: Vec<OsString>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ShowArgs {
    /// The file; default /etc/mycroft/mycroft.toml.
    #[arg(env = "MYCROFT_CONFIG")]
    pub(crate) file: Option<PathBuf>,
    /// All keys as comments, with their defaults: neither file nor environment is asked.
    #[arg(long)]
    pub(crate) example: bool,
}
