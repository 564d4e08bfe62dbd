//! Prints docs/reference/operations.md for `cargo xtask gen`.
#![expect(clippy::print_stdout, reason = "the page goes to stdout")]

fn main() {
    print!("{}", ramen_gateway::operations::reference_page());
}
