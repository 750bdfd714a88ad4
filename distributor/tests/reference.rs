//! The page that describes the program's flags.

#[path = "../../shared/tests/reference/mod.rs"]
mod reference;

use clap::CommandFactory;

#[test]
fn the_page_of_the_program_is_up_to_date() {
    reference::check(heliograph_distributor::program::Program::command());
}
