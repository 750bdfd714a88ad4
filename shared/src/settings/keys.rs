use super::file::File;
use clap::builder::{BoolishValueParser, ValueParser};
use clap::{Arg, ArgAction, Command, Id};
use std::ffi::OsString;

/// A flag as the file sees it.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) id: Id,
    /// How deep the command is that declares it; 0 is the program itself.
    pub(super) depth: usize,
    pub(super) shape: Shape,
    /// The environment variable that sets it too.
    pub(super) variable: Option<OsString>,
    /// Its value must not be shown.
    pub(super) secret: bool,
    pub(super) parser: ValueParser,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
}

pub(super) const CONFIG: &str = "config";
pub(super) const PRINT_CONFIG: &str = "print_config";

/// The keys of the program and of the subcommands that were called, as `--help` orders them.
pub(super) fn known(command: &Command, called: &[String]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut current = Some(command);
    let mut called = called.iter();
    let mut depth = 0;
    while let Some(command) = current {
        keys.extend(command.get_arguments().filter_map(|arg| key(arg, depth)));
        current = called.next().and_then(|name| command.find_subcommand(name));
        depth += 1;
    }
    keys
}

/// Lets every on/off flag be given a value: otherwise `--flag=false` could not win over `flag: true` in the file.
pub(super) fn with_switch_values(command: Command) -> Command {
    command
        .mut_args(|arg| {
            if arg.get_id() == PRINT_CONFIG || !matches!(arg.get_action(), ArgAction::SetTrue) {
                return arg;
            }
            let arg = match arg.get_default_values() {
                [] => arg.default_value("false"),
                _ => arg,
            };
            arg.action(ArgAction::Set)
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(BoolishValueParser::new())
                .value_name("true|false")
                .hide_default_value(true)
                .hide_possible_values(true)
        })
        .mut_subcommands(with_switch_values)
}

/// Lets an empty variable count as none: `VARIABLE= program` is how scripts leave one out.
pub(super) fn without_empty_variables(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let value = arg.get_env().and_then(std::env::var_os);
            let empty = value.is_some_and(|value| value.is_empty());
            if empty { arg.env(None::<&'static str>) } else { arg }
        })
        .mut_subcommands(without_empty_variables)
}

/// Makes what the file says the default of the flags of the commands that were called.
pub(super) fn with_defaults(command: Command, called: &[String], file: &File) -> Command {
    let command = command.mut_args(|arg| {
        let values = key(&arg, 0).and_then(|key| file.values(&key.name));
        match values {
            Some(values) => arg.required(false).default_values(values.to_vec()),
            None => arg,
        }
    });
    match called.split_first() {
        Some((name, inner)) if command.find_subcommand(name).is_some() => {
            command.mut_subcommand(name, |command| with_defaults(command, inner, file))
        }
        _ => command,
    }
}

fn key(arg: &Arg, depth: usize) -> Option<Key> {
    let about_settings = arg.get_id() == CONFIG || arg.get_id() == PRINT_CONFIG;
    let shape = match arg.get_action() {
        ArgAction::Append => Shape::List,
        ArgAction::Set if arg.get_num_args().is_some_and(|count| count.max_values() > 1) => {
            Shape::List
        }
        ArgAction::Set => Shape::One,
        // Help, the version, and flags whose meaning is not their value.
        _ => return None,
    };
    Some(Key {
        name: arg.get_long().filter(|_| !about_settings)?.to_owned(),
        id: arg.get_id().clone(),
        depth,
        shape,
        variable: arg.get_env().map(ToOwned::to_owned),
        secret: arg.is_hide_env_values_set(),
        parser: arg.get_value_parser().clone(),
    })
}
