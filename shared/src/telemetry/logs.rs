use super::Logging;
use clap::ValueEnum;
use std::io::{IsTerminal, stderr};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

/// The flags of every program that logs.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Log level: error, warn, info, debug or trace; can be set per module, as in info,heliograph_distributor=debug
    #[arg(
        long,
        global = true,
        help_heading = "Logging",
        env = "HELIO_LOG_LEVEL",
        value_name = "LEVEL",
        default_value = "info",
        value_parser = accept_level
    )]
    pub log_level: String,

    /// Log format: lines of text, or one JSON object per line
    #[arg(
        long,
        global = true,
        help_heading = "Logging",
        env = "HELIO_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "human"
    )]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("log level {level:?}: {reason}")]
    Level { level: String, reason: String },
    #[error("a log level has at most {most} characters")]
    LongLevel { most: usize },
    #[error("a log level can be set for {hours}h at most: leave the time out to set it for good")]
    LongTime { hours: u64 },
    #[error("logging has been set up already")]
    Twice,
    #[error("nothing is logged any more")]
    Gone,
}

/// Sends the logs of this process to stderr. Called once, by the program.
pub fn init(args: &LogArgs) -> Result<Logging, TelemetryError> {
    // https://no-color.org: set and not empty means no colour.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = !plain && stderr().is_terminal();
    let (subscriber, logging) = subscriber(args, stderr, colour)?;
    subscriber.try_init().map_err(|_| TelemetryError::Twice)?;
    Ok(logging)
}

fn subscriber<W>(
    args: &LogArgs,
    writer: W,
    colour: bool,
) -> Result<(Box<dyn Subscriber + Send + Sync>, Logging), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = &args.log_level;
    let filter = parse_level(level)
        .map_err(|reason| TelemetryError::Level { level: level.clone(), reason })?;
    let (filter, handle) = reload::Layer::new(filter);
    let filtered = tracing_subscriber::registry().with(filter);
    // What cannot be written cannot be complained of either: the complaint would go to stderr, and end the program.
    let lines = fmt::layer().with_writer(writer).with_ansi(colour).log_internal_errors(false);
    let subscriber: Box<dyn Subscriber + Send + Sync> = match args.log_format {
        LogFormat::Human => Box::new(filtered.with(lines)),
        LogFormat::Json => Box::new(filtered.with(lines.json().flatten_event(true))),
    };
    Ok((subscriber, Logging::new(handle, level)))
}

fn accept_level(text: &str) -> Result<String, String> {
    parse_level(text).map(|_| text.to_owned())
}

pub(super) fn parse_level(text: &str) -> Result<EnvFilter, String> {
    // A filter takes a lone word that is no level for the name of a part, and would silence all others.
    let lone_word = !text.contains(['=', ',', '[']);
    if text.is_empty() || (lone_word && text.parse::<LevelFilter>().is_err()) {
        return Err(
            "use error, warn, info, debug, trace or off, also per part: PART=LEVEL".to_owned()
        );
    }
    // What is said later and more closely counts.
    let text = if text == "off" { text.to_owned() } else { format!("{QUIET},{text}") };
    EnvFilter::try_new(text).map_err(|error| error.to_string())
}

/// Parts of others that say the same again and again, of which our own parts tell once.
const QUIET: &str = "kube_leader_election=warn,kube_runtime=error";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        logs: LogArgs,
    }

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Memory {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(flags: &[&str]) -> String {
        let args = Program::parse_from([&["program"], flags].concat()).logs;
        let memory = Memory::default();
        let writer = memory.clone();
        let (subscriber, _logging) = subscriber(&args, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(fleet = "default/one", "published");
            tracing::debug!("detail");
        });
        memory.text()
    }

    #[test]
    fn people_get_plain_lines() {
        let text = logged(&[]);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("INFO"), "{text}");
        assert!(text.trim_end().ends_with("published fleet=\"default/one\""), "{text}");
        assert!(!text.contains('\u{1b}'), "colour without a terminal: {text}");
    }

    #[test]
    fn machines_get_one_object_per_line() {
        let text = logged(&["--log-format", "json", "--log-level", "debug"]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["message"], "published");
        assert_eq!(lines[0]["fleet"], "default/one");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[1]["level"], "DEBUG");
    }

    #[test]
    fn a_part_can_have_its_own_level() {
        assert_eq!(logged(&["--log-level", "warn,heliograph_shared=debug"]).lines().count(), 2);
        assert_eq!(logged(&["--log-level", "warn"]), "");
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        for wrong in ["inf", "", "heliograph=loud", "info,=,"] {
            let refused = Program::try_parse_from(["program", "--log-level", wrong]);
            assert!(refused.is_err(), "{wrong:?} was accepted");
        }
        for right in ["off", "WARN", "info,heliograph_shared=trace", "heliograph_shared=debug"] {
            assert!(Program::try_parse_from(["program", "--log-level", right]).is_ok(), "{right}");
        }
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
        tokio::task::yield_now().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_level_is_changed_while_it_runs_and_goes_back_by_itself() {
        let args = Program::parse_from(["program"]).logs;
        let memory = Memory::default();
        let writer = memory.clone();
        let (subscriber, logging) = subscriber(&args, move || writer.clone(), false).unwrap();
        let _here = tracing::subscriber::set_default(subscriber);
        let is_logged = |detail: &str| {
            tracing::debug!("{detail}");
            memory.text().contains(detail)
        };
        assert!(!is_logged("before"));
        logging.set("debug", Some(Duration::from_secs(600))).unwrap();
        assert!(is_logged("in time"));
        assert_eq!(logging.to_string(), "debug for another 600s, then info");
        assert!(logging.set("loud", None).is_err(), "no level");
        assert!(logging.set("trace", Some(Duration::from_secs(90_000))).is_err(), "too long");
        assert!(is_logged("what is refused changes nothing"));
        pass(Duration::from_secs(601)).await;
        assert!(!is_logged("after"));
        assert_eq!(logging.to_string(), "info");
        // One that is for good is not ended by the time of one before.
        logging.set("debug", Some(Duration::from_secs(1))).unwrap();
        logging.set("debug", None).unwrap();
        pass(Duration::from_secs(2)).await;
        assert!(is_logged("for good"));
        assert_eq!(logging.to_string(), "debug, configured: info");
    }
}
