use super::keys::with_switch_values;
use clap::{Arg, ArgAction, Command};
use std::fmt::Write;

/// Every command and every flag of a program, as a page of Markdown. Each program has a test that compares it with the page
/// in `docs/reference`.
pub fn reference(program: Command) -> String {
    let mut program = with_switch_values(program).disable_help_subcommand(true);
    // What subcommands inherit, and how they are called, is known from then on.
    program.build();
    let mut page = format!(
        "# {}\n\n`make golden` generates this page from the program; `--help` prints the same.\n",
        program.get_name()
    );
    describe(&program, &[], &mut page);
    page
}

/// `above` are the commands in which this one is, outermost first.
fn describe(command: &Command, above: &[&Command], page: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    if !above.is_empty() {
        let names: Vec<_> = above.iter().map(|it| it.get_name()).collect();
        write(page, &format!("\n## {} {}\n", names.join(" "), command.get_name()));
    }
    write(page, &format!("\n{}\n", about.trim()));
    write(page, &format!("\n```\n{}\n```\n", usage(command, above)));
    let shown: Vec<&Arg> = command.get_arguments().filter(|arg| is_shown(arg, above)).collect();
    let mut headings: Vec<&str> = Vec::new();
    for arg in &shown {
        let heading = heading(arg);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for of in headings {
        write(page, &format!("\n| {of} | environment | default | |\n| --- | --- | --- | --- |\n"));
        shown.iter().filter(|arg| heading(arg) == of).for_each(|arg| row(arg, page));
    }
    let above: Vec<&Command> = above.iter().copied().chain([command]).collect();
    let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
    visible.for_each(|inner| describe(inner, &above, page));
}

fn usage(command: &Command, above: &[&Command]) -> String {
    let mut words: Vec<String> = above.iter().map(|it| it.get_name().to_owned()).collect();
    words.push(command.get_name().to_owned());
    if command.get_arguments().any(|arg| !arg.is_positional()) {
        words.push("[OPTIONS]".to_owned());
    }
    for arg in command.get_positionals() {
        let name = names(arg);
        let several = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        let dots = if several { "..." } else { "" };
        words.push(match arg.is_required_set() {
            true => format!("{name}{dots}"),
            false => format!("[{name}]{dots}"),
        });
    }
    if command.get_subcommands().any(|it| !it.is_hide_set()) {
        words.push("COMMAND".to_owned());
    }
    words.join(" ")
}

/// Flags that a command inherits are described at their own command.
fn is_shown(arg: &Arg, above: &[&Command]) -> bool {
    let is_help = matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    let is_inherited = arg.is_global_set()
        && above.iter().any(|it| it.get_arguments().any(|known| known.get_id() == arg.get_id()));
    !is_help && !arg.is_hide_set() && !is_inherited
}

fn heading(arg: &Arg) -> &str {
    match (arg.is_positional(), arg.get_help_heading()) {
        (true, _) => "Arguments",
        (false, Some(heading)) => heading,
        (false, None) => "Options",
    }
}

fn row(arg: &Arg, page: &mut String) {
    let flag = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{}`", value(arg)),
        (None, Some(long)) => format!("`--{long}{}`", value(arg)),
        (Some(short), None) => format!("`-{short}{}`", value(arg)),
        (None, None) => format!("`{}`", names(arg)),
    };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
    let default: Vec<_> = arg.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    // A switch is off.
    let default = match default.join(",").as_str() {
        "" | "false" => String::new(),
        default => format!("`{default}`"),
    };
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut help = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let values = arg.get_possible_values();
    if !arg.is_hide_possible_values_set() && !values.is_empty() {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
        help += &format!(": {}", values.join(", "));
    }
    let cells = [flag, variable.unwrap_or_default(), default, help];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    write(page, &format!("| {} |\n", cells.join(" | ")));
}

/// ` FILE`, or nothing for a switch.
fn value(arg: &Arg) -> String {
    let is_switch = arg.get_num_args().is_some_and(|count| count.min_values() == 0);
    match arg.get_action().takes_values() && !is_switch {
        true => format!(" {}", names(arg)),
        false => String::new(),
    }
}

fn names(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some(names) => names.join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

/// Writing to a string does not fail.
fn write(page: &mut String, text: &str) {
    let _ = page.write_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// Does something
    #[derive(Parser)]
    #[command(name = "program")]
    struct Program {
        #[command(subcommand)]
        inner: Inner,

        /// Where to | look
        #[arg(long, global = true, env = "PROGRAM_PLACE", value_name = "DIR", default_value = ".")]
        place: String,
    }

    #[derive(clap::Subcommand)]
    enum Inner {
        /// Goes
        ///
        /// Far away.
        Go {
            /// What to take along
            things: Vec<String>,

            /// Quickly
            #[arg(short, long)]
            quick: bool,

            /// The way
            #[arg(long, value_parser = ["sea", "land"], help_heading = "Way")]
            way: Option<String>,
        },
        #[command(hide = true)]
        Hidden,
    }

    #[test]
    fn a_program_is_described_whole() {
        use clap::CommandFactory;
        let expected = "\
# program

`make golden` generates this page from the program; `--help` prints the same.

Does something

```
program [OPTIONS] COMMAND
```

| Options | environment | default | |
| --- | --- | --- | --- |
| `--place DIR` | `PROGRAM_PLACE` | `.` | Where to \\| look |

## program go

Goes

Far away.

```
program go [OPTIONS] [THINGS]...
```

| Arguments | environment | default | |
| --- | --- | --- | --- |
| `THINGS` |  |  | What to take along |

| Options | environment | default | |
| --- | --- | --- | --- |
| `-q`, `--quick` |  |  | Quickly |

| Way | environment | default | |
| --- | --- | --- | --- |
| `--way WAY` |  |  | The way: `sea`, `land` |
";
        assert_eq!(reference(Program::command()), expected);
    }
}
