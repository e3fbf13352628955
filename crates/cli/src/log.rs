//! What daemons tell on standard error: the one place where events become lines, so that nothing from outside reaches a
//! terminal or a log without passing `printable`.
use crate::exit::EXIT_ERROR;
use anyhow::Result;
use clap::ValueEnum;
use mycroft_record::HostTime;
use mycroft_record::text::printable;
use mycroft_serve::api::TimeJson;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};
use std::panic::PanicHookInfo;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, error};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// How lines look.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Sentences for people.
    Text,
    /// One object a line: time, level, target, message, fields.
    Json,
}

/// The least that is told.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    /// Something does not work.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What happens.
    Info,
    /// What developers want to know.
    Debug,
}

/// What a daemon tells, and how.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct LogArgs {
    /// How lines on standard error look.
    #[arg(long, value_enum, env = "MYCROFT_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Least level of the lines on standard error.
    #[arg(long, value_enum, env = "MYCROFT_LOG_LEVEL", default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
}

impl LogArgs {
    /// Makes lines on standard error of everything that this process tells from now on.
    pub(crate) fn begin(self, program: &'static str) {
        let level = match self.log_level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        begin(Targets::new().with_default(level), Lines { program, format: self.log_format });
        if self.log_format == LogFormat::Json {
            std::panic::set_hook(Box::new(tell_panic));
        }
    }

    /// The end of a daemon that has begun its log: where lines are objects, an error is one, too.
    pub(crate) fn end(self, outcome: Result<u8>) -> Result<u8> {
        match outcome {
            Err(why) if self.log_format == LogFormat::Json => {
                error!("{}", in_one_line(&why));
                Ok(EXIT_ERROR)
            }
            other => other,
        }
    }
}

/// The error and what caused it, each said once: most messages of the libraries name their cause themselves.
pub(crate) fn in_one_line(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// A panic as an event. As text the line of the standard library is one for people already.
fn tell_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("without a name").to_owned();
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = text.unwrap_or("something that is no text");
    error!(place, thread, "thread {thread} panicked at {place}: {what}");
}

/// The same for the commands that run testbed jobs: what their hosts and ranks tell, and nothing of a server that they
/// start for themselves.
pub(crate) fn begin_testbed() {
    let filter = Targets::new().with_target("mycroft_testbed", LevelFilter::WARN);
    begin(filter, Lines { program: "mycroft testbed", format: LogFormat::Text });
}

fn begin(filter: Targets, lines: Lines) {
    // Refused only where a subscriber is there already, which then tells.
    let _ = tracing::subscriber::set_global_default(subscriber(filter, lines, std::io::stderr));
}

fn subscriber<W>(filter: Targets, lines: Lines, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .event_format(lines)
        .with_ansi(false)
        .log_internal_errors(false) // Nobody reads standard error any more: the daemon goes on.
        .with_writer(writer);
    tracing_subscriber::registry().with(filter).with(layer)
}

/// Writes each event as one line.
struct Lines {
    program: &'static str,
    format: LogFormat,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let metadata = event.metadata();
        match self.format {
            LogFormat::Text => said.text(self.program, *metadata.level(), &mut out),
            LogFormat::Json => said.json(*metadata.level(), metadata.target(), &mut out),
        }
    }
}

/// What an event says, fit for print.
#[derive(Default)]
struct Said {
    message: String,
    fields: Map<String, Value>,
}

impl Said {
    fn put(&mut self, field: &Field, text: &str) {
        let text = printable(text);
        match field.name() {
            "message" => self.message = text.into_owned(),
            name => self.put_value(name, text.into_owned()),
        }
    }

    fn put_value(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// `program: message (field=value)`: messages are sentences and name most fields themselves.
    fn text(&self, program: &str, level: Level, out: &mut impl Write) -> fmt::Result {
        let level = match level {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            _ => "debug: ",
        };
        write!(out, "{program}: {level}{}", self.message)?;
        for (name, value) in &self.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !names(&self.message, &value) {
                write!(out, " ({name}={value})")?;
            }
        }
        out.write_char('\n')
    }

    fn json(self, level: Level, target: &str, out: &mut impl Write) -> fmt::Result {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = HostTime(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        let line = json!({
            "time": TimeJson::exact(now).text,
            "level": level.as_str().to_ascii_lowercase(),
            "target": target,
            "message": self.message,
            "fields": self.fields,
        });
        writeln!(out, "{line}")
    }
}

/// Whether a text has a value as a word or words of its own.
fn names(text: &str, value: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(value)
        .any(|(at, _)| is_end(text[..at].chars().next_back()) && is_end(text[at + value.len()..].chars().next()))
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_value(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_value(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_value(field.name(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing::{debug, info, warn};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics inside").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(filter: Targets, format: LogFormat, act: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = subscriber(filter, Lines { program: "mycroft serve", format }, move || writer.clone());
        tracing::subscriber::with_default(subscriber, act);
        let bytes = written.0.lock().expect("nobody panics inside").clone();
        String::from_utf8(bytes).expect("text")
    }

    fn at(level: LevelFilter) -> Targets {
        Targets::new().with_default(level)
    }

    const HOSTILE: &str = "a\x1b[2J\x07\u{202e}b\nmycroft serve: forged";

    #[test]
    fn nothing_hostile_leaves_in_a_message_or_in_a_field() {
        let tell = || {
            warn!("{HOSTILE}");
            warn!(host = HOSTILE, "a str");
            warn!(host = %HOSTILE, path = ?HOSTILE, "displayed and debugged");
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = written(at(LevelFilter::INFO), format, tell);
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(!text.chars().any(|c| c != '\n' && printable(&c.to_string()) != c.to_string()), "{text:?}");
            assert_eq!(text.matches("u{1b}").count(), 4, "said, not swallowed: {text}");
        }
    }

    #[test]
    fn text_is_sentences_with_the_fields_that_they_do_not_name() {
        let text = written(at(LevelFilter::INFO), LogFormat::Text, || {
            info!(job = "train-7", "job \"train-7\" appeared");
            warn!(case = 3u64, error = "away", "alert for case 13 was not delivered: away");
            error!(path = "/store", "the disk is full");
            debug!("not told");
        });
        assert_eq!(
            text,
            "mycroft serve: job \"train-7\" appeared\n\
             mycroft serve: warning: alert for case 13 was not delivered: away (case=3)\n\
             mycroft serve: error: the disk is full (path=/store)\n"
        );
    }

    #[test]
    fn json_is_an_object_a_line() {
        let text = written(at(LevelFilter::DEBUG), LogFormat::Json, || {
            debug!(case = 3u64, offset = -1i64, on = true, host = "h", "one");
            info!(target: "elsewhere", "two");
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        let keys: Vec<&String> = lines[0].as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["fields", "level", "message", "target", "time"]);
        assert_eq!(lines[0]["fields"], json!({"case": 3, "offset": -1, "on": true, "host": "h"}));
        assert_eq!(lines[0]["target"], "mycroft::log::tests");
        assert_eq!((&lines[0]["level"], &lines[0]["message"]), (&json!("debug"), &json!("one")));
        assert!(lines[0]["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')), "{text}");
        assert_eq!((&lines[1]["target"], &lines[1]["fields"]), (&json!("elsewhere"), &json!({})));
    }

    #[test]
    fn a_panic_is_an_object_like_other_lines() {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(tell_panic));
        let text = written(at(LevelFilter::INFO), LogFormat::Json, || {
            let _ = std::panic::catch_unwind(|| panic!("of a\x1b[2J test"));
        });
        std::panic::set_hook(before);
        let line: Value = serde_json::from_str(&text).expect("one line of JSON");
        assert_eq!(line["level"], "error");
        let message = line["message"].as_str().expect("a message");
        assert!(message.contains("log.rs:") && message.ends_with("of a\\u{1b}[2J test"), "{message}");
    }
}
