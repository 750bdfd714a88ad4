#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use clap::{Parser, Subcommand, ValueEnum};
use heliograph_shared::settings::{self, Parsed, SettingsArgs};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::NamedTempFile;

#[derive(Debug, Parser)]
#[command(name = "program", version)]
struct Program {
    #[command(flatten)]
    settings: SettingsArgs,

    /// For every command
    #[arg(long, global = true, default_value = "calm")]
    mood: String,

    #[command(subcommand)]
    command: Called,
}

#[derive(Debug, Subcommand)]
enum Called {
    Serve(Serve),
    Paint {
        #[arg(long)]
        colour: Option<Colour>,
    },
}

#[derive(Debug, clap::Args)]
struct Serve {
    #[arg(long, default_value = "127.0.0.1:18000")]
    address: SocketAddr,
    #[arg(long, env = "SETTINGS_TEST_DIR")]
    dir: PathBuf,
    #[arg(long, env = "SETTINGS_TEST_FAST")]
    fast: bool,
    #[arg(long)]
    label: Vec<String>,
    #[arg(long)]
    limit: Option<u16>,
    #[arg(long, default_value = "none")]
    colour: Colour,
    #[arg(long, env = "SETTINGS_TEST_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Colour {
    None,
    Red,
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn words<'a>(line: &'a str, config: Option<&'a Path>) -> Vec<&'a str> {
    let config = config.map(|path| ["--config", path.to_str().unwrap()]);
    ["program"]
        .into_iter()
        .chain(line.split_whitespace())
        .chain(config.into_iter().flatten())
        .collect()
}

/// What `program LINE --config FILE` runs with.
fn run(line: &str, text: &str) -> Program {
    let file = file(text);
    match settings::parse(words(line, Some(file.path()))) {
        Ok(Parsed::Run(program)) => program,
        Ok(Parsed::Print(text)) => panic!("it prints: {text}"),
        Err(error) => panic!("{error}"),
    }
}

fn serve(line: &str, text: &str) -> Serve {
    match run(line, text).command {
        Called::Serve(serve) => serve,
        other => panic!("{other:?}"),
    }
}

/// What `program LINE --config FILE` is refused with, the file's name as FILE.
fn refused(line: &str, text: &str) -> String {
    let file = file(text);
    let error = settings::parse::<Program>(words(line, Some(file.path()))).unwrap_err();
    let message = error.to_string().replace(file.path().to_str().unwrap(), "FILE");
    assert!(!message.contains('\n'), "more than a line: {message}");
    message
}

fn printed(line: &str, config: Option<&Path>) -> String {
    match settings::parse::<Program>(words(line, config)).unwrap() {
        Parsed::Print(text) => text,
        Parsed::Run(program) => panic!("it runs: {program:?}"),
    }
}

#[test]
fn without_a_file_flags_and_defaults_decide() {
    let Parsed::Run(program) = settings::parse::<Program>(words("serve --dir a", None)).unwrap()
    else {
        panic!("it prints")
    };
    assert_eq!(program.mood, "calm");
    let Called::Serve(serve) = program.command else { panic!("{program:?}") };
    assert_eq!(serve.address, "127.0.0.1:18000".parse().unwrap());
    assert_eq!(serve.dir, Path::new("a"));
    assert!(!serve.fast);
}

#[test]
fn the_file_gives_every_kind_of_value() {
    let serve = serve(
        "serve",
        "address: 127.0.0.1:9\ndir: /etc/gateways\nfast: true\nlabel: [one, two words, 1.10]\nlimit: 7\ncolour: red\n",
    );
    assert_eq!(serve.address, "127.0.0.1:9".parse().unwrap());
    assert_eq!(serve.dir, Path::new("/etc/gateways"), "a required flag may be in the file");
    assert!(serve.fast);
    assert_eq!(serve.label, ["one", "two words", "1.10"], "text is not taken for a number");
    assert_eq!(serve.limit, Some(7));
    assert_eq!(serve.colour, Colour::Red);
}

#[test]
fn flags_win_over_the_file() {
    let text =
        "address: 127.0.0.1:9\ndir: file\nfast: true\nlabel: [one, two]\nlimit: 7\nmood: wild\n";
    let line = "serve --address 127.0.0.1:5 --dir flag --fast=false --label three --mood sad";
    let program = run(line, text);
    assert_eq!(program.mood, "sad");
    let Called::Serve(serve) = program.command else { panic!("{program:?}") };
    assert_eq!(serve.address.port(), 5);
    assert_eq!(serve.dir, Path::new("flag"));
    assert!(!serve.fast);
    assert_eq!(serve.label, ["three"]);
    assert_eq!(serve.limit, Some(7), "what no flag names stays");
}

#[test]
fn an_on_off_flag_needs_no_value_and_takes_one() {
    assert!(serve("serve --dir a --fast", "").fast);
    assert!(serve("serve --dir a --fast=true", "").fast);
    assert!(!serve("serve --fast=false --dir a", "fast: yes\n").fast);
    assert!(serve("serve --dir a", "fast: yes\n").fast);
    assert!(!serve("serve --dir a", "fast: false\n").fast);
}

#[test]
fn null_and_an_empty_file_leave_the_defaults() {
    for text in ["", "# nothing\n", "---\n", "address: null\nlabel:\nlimit: ~\n", "label: []\n"] {
        let serve = serve("serve --dir a", text);
        assert_eq!(serve.address.port(), 18_000, "{text:?}");
        assert_eq!((serve.limit, serve.label.len()), (None, 0), "{text:?}");
    }
}

#[test]
fn a_global_flag_is_a_key_wherever_it_was_written() {
    assert_eq!(run("serve --dir a", "mood: wild\n").mood, "wild");
    assert_eq!(run("--mood sad serve --dir a", "mood: wild\n").mood, "sad");
    let file = file("mood: wild\n");
    let path = file.path().to_str().unwrap();
    let Parsed::Run(program) =
        settings::parse::<Program>(["program", "--config", path, "serve", "--dir", "a"]).unwrap()
    else {
        panic!("it prints")
    };
    assert_eq!(program.mood, "wild", "--config before the command");
}

#[test]
fn the_keys_are_those_of_the_command_that_was_called() {
    let Called::Paint { colour } = run("paint", "colour: red\n").command else { panic!() };
    assert_eq!(colour, Some(Colour::Red));
    assert_eq!(
        refused("paint", "mood: wild\nlimit: 7\n"),
        "unknown key \"limit\" in FILE line 2: did you mean \"mood\"?"
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest() {
    assert_eq!(
        refused("serve --dir a", "# where\nadrress: 127.0.0.1:9\n"),
        "unknown key \"adrress\" in FILE line 2: did you mean \"address\"?"
    );
    assert_eq!(
        refused("serve --dir a", "labels: {a: [b]}\n"),
        "unknown key \"labels\" in FILE line 1: did you mean \"label\"?"
    );
    // The file cannot name another, nor ask to be printed.
    assert!(refused("serve --dir a", "config: x\n").starts_with("unknown key \"config\""));
    assert!(refused("serve --dir a", "print-config: true\n").starts_with("unknown key"));
}

#[test]
fn a_wrong_value_names_the_file_the_line_and_the_key() {
    let line = "serve --dir a";
    assert_eq!(
        refused(line, "mood: wild\naddress: localhost\n"),
        "wrong value for \"address\" in FILE line 2: \"localhost\": invalid socket address syntax"
    );
    assert_eq!(
        refused(line, "colour: blue\n"),
        "wrong value for \"colour\" in FILE line 1: \"blue\": use one of none, red"
    );
    assert_eq!(
        refused(line, "limit: 70000\n"),
        "wrong value for \"limit\" in FILE line 1: \"70000\": 70000 is not in 0..=65535"
    );
    assert_eq!(
        refused(line, "fast: perhaps\n"),
        "wrong value for \"fast\" in FILE line 1: \"perhaps\": value was not a boolean"
    );
    // Also where a flag wins: a file that is wrong is wrong.
    assert!(refused("serve --dir a --limit 5", "limit: many\n").starts_with("wrong value"));
}

#[test]
fn what_is_no_settings_file_is_one_clear_line() {
    let line = "serve --dir a";
    assert_eq!(
        refused(line, "mood: calm\nmood: wild\n"),
        "key \"mood\" is in FILE twice: line 2 and before"
    );
    assert!(
        refused(line, "address: [127.0.0.1:9]\n")
            .starts_with("FILE: \"address\" takes one value: ")
    );
    assert!(refused(line, "label: one\n").starts_with("FILE: \"label\" takes a list: "));
    assert!(refused(line, "- mood\n").starts_with("FILE: "));
    assert!(refused(line, "just text\n").contains("lines of KEY: VALUE"));
    let unclosed = refused(line, "mood: calm\nlabel: [one\n");
    assert!(unclosed.starts_with("FILE: ") && unclosed.contains("line "), "{unclosed}");
    let two = refused(line, "mood: calm\n---\nmood: wild\n");
    assert!(two.starts_with("FILE: ") && two.contains("line 3"), "{two}");

    let missing = Path::new("/nonexistent/settings.yaml");
    let error = settings::parse::<Program>(words(line, Some(missing))).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot read /nonexistent/settings.yaml: No such file or directory (os error 2)"
    );
}

#[test]
fn wrong_flags_and_calls_for_help_are_claps() {
    for (line, kind) in [
        ("serve", clap::error::ErrorKind::MissingRequiredArgument),
        ("serve --dir a --adress b", clap::error::ErrorKind::UnknownArgument),
        ("serve --dir a --limit many", clap::error::ErrorKind::ValueValidation),
        ("serve --help", clap::error::ErrorKind::DisplayHelp),
        ("--version", clap::error::ErrorKind::DisplayVersion),
        ("", clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
    ] {
        match settings::parse::<Program>(words(line, None)) {
            Err(settings::SettingsError::Flags(error)) => assert_eq!(error.kind(), kind, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn the_result_is_printed_with_where_it_came_from() {
    let file = file("label: [one, 'a, b']\nfast: true\naddress: 127.0.0.1:9\n");
    let line = "serve --dir flag --address 127.0.0.1:5 --print-config";
    assert_eq!(
        printed(line, Some(file.path())),
        "mood: calm # default\n\
         address: 127.0.0.1:5 # flag\n\
         dir: flag # flag\n\
         fast: true # file\n\
         label: [one, \"a, b\"] # file\n\
         limit: null # default\n\
         colour: none # default\n\
         token: null # default\n"
    );
}

/// Printed settings without where they came from.
fn values(printed: &str) -> Vec<&str> {
    printed.lines().map(|line| line.rsplit_once(" # ").unwrap().0).collect()
}

#[test]
fn what_is_printed_gives_the_same_again() {
    let awkward = [
        "",
        " ",
        "null",
        "~",
        "a: b",
        "# c",
        "[x]",
        "{y}",
        "'",
        "\"",
        "\\",
        "line\nline",
        "- z",
        "5",
        "0x1F",
        "yes",
        "a:",
        "a:b",
        "*x",
        "&x",
        "!x",
        "%",
        "@",
        "`",
        "ü",
        "\u{7f}",
        "\t",
        "[::1]:80",
        "-5",
        "a#b",
        "a #b",
    ];
    let labels: Vec<_> = awkward.iter().map(|label| format!("--label={label}")).collect();
    for mood in awkward {
        let args = ["program", "serve", "--dir=a b", "--print-config", "--fast"].map(str::to_owned);
        let args = args.into_iter().chain([format!("--mood={mood}")]).chain(labels.clone());
        let Ok(Parsed::Print(first)) = settings::parse::<Program>(args) else { panic!("{mood:?}") };
        let file = file(&first);
        let program = run("serve", &first);
        assert_eq!(program.mood, mood, "{first}");
        let Called::Serve(serve) = program.command else { panic!("{program:?}") };
        assert_eq!(serve.label, awkward, "{first}");
        let second = printed("serve --print-config", Some(file.path()));
        assert_eq!(values(&second), values(&first));
    }
}

#[test]
fn a_secret_is_not_shown() {
    let file = file("token: hunter2\n");
    let text = printed("serve --dir a --print-config", Some(file.path()));
    assert!(text.contains("token: \"<redacted>\" # file\n"), "{text}");
    assert!(!text.contains("hunter2"));
    assert_eq!(
        refused("serve --dir a", "token: <redacted>\n"),
        "wrong value for \"token\" in FILE line 1: it was redacted when it was printed: write the secret itself"
    );
}

/// The settings that `program LINE` prints with these variables, or the error. The environment belongs to the
/// process, so the test `name` calls itself with another; there, this prints and returns nothing.
fn printed_with(name: &str, line: &str, variables: &[(&str, &str)]) -> Option<String> {
    const CHILD: &str = "SETTINGS_TEST_LINE";
    if let Ok(line) = std::env::var(CHILD) {
        match settings::parse::<Program>(words(&line, None)) {
            Ok(Parsed::Print(text)) => println!("{text}"),
            Ok(Parsed::Run(program)) => panic!("it runs: {program:?}"),
            Err(error) => println!("error: {error}"),
        }
        return None;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, line)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_environment_wins_over_the_file_and_loses_to_flags() {
    let file = file("dir: file\nfast: true\nmood: wild\nlimit: 7\n");
    let variables = [
        ("HELIO_CONFIG", file.path().to_str().unwrap()),
        ("SETTINGS_TEST_DIR", "environment"),
        ("SETTINGS_TEST_FAST", "false"),
        ("SETTINGS_TEST_TOKEN", "hunter2"),
    ];
    let name = "the_environment_wins_over_the_file_and_loses_to_flags";
    let run = |line: &str| printed_with(name, line, &variables);
    let Some(text) = run("serve --print-config") else { return };
    for line in [
        "mood: wild # file\n",
        "dir: environment # environment\n",
        "fast: false # environment\n",
        "limit: 7 # file\n",
        "token: \"<redacted>\" # environment\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("hunter2"));
    let text = run("serve --print-config --dir flag --fast --mood sad").unwrap();
    for line in ["mood: sad # flag\n", "dir: flag # flag\n", "fast: true # flag\n"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn an_empty_variable_counts_as_none() {
    let file = file("dir: file\n");
    let variables = [
        ("HELIO_CONFIG", file.path().to_str().unwrap()),
        ("SETTINGS_TEST_DIR", ""),
        ("SETTINGS_TEST_FAST", ""),
        ("SETTINGS_TEST_TOKEN", ""),
    ];
    let name = "an_empty_variable_counts_as_none";
    let Some(text) = printed_with(name, "serve --print-config", &variables) else { return };
    for line in ["dir: file # file\n", "fast: false # default\n", "token: null # default\n"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn a_wrong_value_of_a_variable_is_refused_by_its_name() {
    let name = "a_wrong_value_of_a_variable_is_refused_by_its_name";
    let variables = [("SETTINGS_TEST_FAST", "perhaps")];
    let line = "serve --dir d --print-config";
    let Some(text) = printed_with(name, line, &variables) else { return };
    let expected = "error: wrong value for SETTINGS_TEST_FAST in the environment: \"perhaps\": ";
    assert!(text.contains(expected), "{text}");
    // The flag wins over it, and a wrong flag is not blamed on it.
    let text = printed_with(name, &format!("{line} --fast=true"), &variables).unwrap();
    assert!(text.contains("fast: true # flag\n"), "{text}");
    let text = printed_with(name, &format!("{line} --fast=maybe"), &variables).unwrap();
    assert!(text.contains("'maybe'") && !text.contains("SETTINGS_TEST_FAST"), "{text}");
}
