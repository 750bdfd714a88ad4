//! Settings, in the same way in every program: a flag overrides an environment variable, which overrides the YAML file
//! named by `--config`, which overrides the default. An empty variable counts as none.
//!
//! A program declares its flags with clap and nothing else. The keys of the file are the long names of the flags
//! of the command that was called; a flag that repeats is a list there. A flag whose value must not be shown is
//! declared with `hide_env_values = true`. What a flag requires or excludes is checked among flags and variables
//! only: a value of the file counts as a default there.

mod file;
mod keys;
mod print;
mod reference;

pub use reference::reference;

use clap::error::ErrorKind;
use clap::{Command, Parser};
use file::File;
use keys::Key;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;

/// The flags of every program that has settings. Flatten it into the top command.
#[derive(Clone, Debug, clap::Args)]
pub struct SettingsArgs {
    /// YAML file with settings; its keys are the long names of the flags
    #[arg(
        long,
        global = true,
        help_heading = "Settings",
        env = "HELIO_CONFIG",
        value_name = "FILE"
    )]
    pub config: Option<PathBuf>,

    /// Print the settings that result from flags, environment, file and defaults, and exit
    #[arg(long, global = true, help_heading = "Settings")]
    pub print_config: bool,
}

/// The request of the command line.
#[derive(Debug)]
pub enum Parsed<T> {
    /// Run with these settings.
    Run(T),
    /// Print this text and exit: the answer to `--print-config`.
    Print(String),
}

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Wrong flags or variables, and also a call for help or the version: [`clap::Error::exit`] knows which.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    #[error("cannot read {}: {cause}", .file.display())]
    Unreadable { file: PathBuf, cause: io::Error },
    #[error("{}: {reason}", .file.display())]
    Malformed { file: PathBuf, reason: String },
    #[error("key {key:?} is in {} twice: line {line} and before", .file.display())]
    Repeated { file: PathBuf, line: u64, key: String },
    #[error("unknown key {key:?} in {} line {line}{}", .file.display(), suggestion(nearest))]
    UnknownKey { file: PathBuf, line: u64, key: String, nearest: Option<String> },
    #[error("wrong value for {key:?} in {} line {line}: {reason}", .file.display())]
    WrongValue { file: PathBuf, line: u64, key: String, reason: String },
    #[error("wrong value for {} in the environment: {reason}", .variable.display())]
    WrongVariable { variable: OsString, reason: String },
}

/// The settings of the program `T` from `args`, whose first is the program's name, and from the environment.
pub fn parse<T: Parser>(
    args: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<Parsed<T>, SettingsError> {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    let command = keys::with_switch_values(keys::without_empty_variables(T::command()));
    let command_line = CommandLine::of(command.clone(), &args)?;
    let keys = keys::known(&command, &command_line.commands);
    let file = match command_line.config {
        Some(path) => File::load(path, &keys)?,
        None => File::default(),
    };

    // A value of the file becomes the default of its flag: clap lets variables and flags win over it.
    let mut command = keys::with_defaults(command, &command_line.commands, &file);
    let matches = command.try_get_matches_from_mut(&args);
    let matches = matches.map_err(|error| blame_variable(error, &keys, &args))?;
    let settings = T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if command_line.print_config {
        return Ok(Parsed::Print(print::effective(&keys, &matches, &file)));
    }
    Ok(Parsed::Run(settings))
}

/// The settings of this process. Ends it where there is nothing to run: after `--help`, `--version` and
/// `--print-config`, and with one clear line and status 2 where a setting is wrong.
pub fn parse_or_exit<T: Parser>() -> T {
    match parse(std::env::args_os()) {
        Ok(Parsed::Run(settings)) => settings,
        Ok(Parsed::Print(text)) => {
            // The reader may have closed our output.
            let _ = io::stdout().write_all(text.as_bytes());
            process::exit(0)
        }
        Err(SettingsError::Flags(error)) => error.exit(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            process::exit(2)
        }
    }
}

/// The part of the command line that is needed before the settings file can be read.
struct CommandLine {
    config: Option<PathBuf>,
    print_config: bool,
    /// The subcommands that were called, outermost first.
    commands: Vec<String>,
}

impl CommandLine {
    fn of(command: Command, args: &[OsString]) -> Result<Self, clap::Error> {
        // Flags may be missing here that the file will give, so what is wrong is found the second time.
        let matches = command.ignore_errors(true).try_get_matches_from(args)?;
        let mut commands = Vec::new();
        let mut inner = &matches;
        while let Some((name, matches)) = inner.subcommand() {
            commands.push(name.to_owned());
            inner = matches;
        }
        let config = matches.try_get_one::<PathBuf>(keys::CONFIG).ok().flatten().cloned();
        let print_config = matches.try_get_one::<bool>(keys::PRINT_CONFIG).ok().flatten().copied();
        Ok(Self { config, print_config: print_config.unwrap_or(false), commands })
    }
}

/// Names the variable that a wrong value came from; clap's error names the flag.
fn blame_variable(error: clap::Error, keys: &[Key], args: &[OsString]) -> SettingsError {
    let wrong_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let variable = keys.iter().filter(|_| wrong_value).find_map(|key| wrong_variable(key, args));
    variable.unwrap_or(SettingsError::Flags(error))
}

fn wrong_variable(key: &Key, args: &[OsString]) -> Option<SettingsError> {
    let flag = format!("--{}", key.name);
    let is_flag = |arg: &OsString| {
        let arg = arg.to_string_lossy();
        arg.strip_prefix(&flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    // The flag overrides the variable, which is not even read.
    let variable = key.variable.clone().filter(|_| !args.iter().any(is_flag))?;
    let value = std::env::var_os(&variable).filter(|value| !value.is_empty())?;
    let reason = file::check(key, &value.to_string_lossy()).err()?;
    Some(SettingsError::WrongVariable { variable, reason })
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |nearest| format!(": did you mean {nearest:?}?"))
}
