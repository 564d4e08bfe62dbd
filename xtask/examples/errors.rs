//! Prints docs/reference/errors.md for `cargo xtask gen`.
#![expect(clippy::print_stdout, reason = "the page goes to stdout")]

fn main() {
    print!("{}", ramen_group::errors_page());
}
