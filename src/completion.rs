//! The verb `completion`: the completions of a shell. Owns which shells; the words come from the command line itself.

use crate::Cli;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::io::{self, ErrorKind, Write};

/// Arguments of `completion`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  warmpath completion bash > /etc/bash_completion.d/warmpath
  warmpath completion zsh > ~/.zfunc/_warmpath
  warmpath completion fish > ~/.config/fish/completions/warmpath.fish")]
pub struct CompletionArgs {
    /// The shell
    shell: Known,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

/// Prints them.
pub fn run(args: &CompletionArgs) -> Result<(), String> {
    let shell = match args.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warmpath", &mut script);
    io::stdout().write_all(&script).or_else(|fault| match fault.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(format!("the completions can't be written: {fault}")),
    })
}
