//! `nvme-kv`: command line for NVMe Key-Value namespaces.
//!
//! `serve` puts an emulated namespace on NVMe/TCP; `attach` and `detach` connect
//! the Linux kernel of this machine to it.

mod attach;
mod fault;
mod serve;
mod signal;
mod simulate;
mod sysfs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Subsystem name that `serve` and `attach` use unless told otherwise.
const DEFAULT_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:7f0c1b1e-5c2d-4a59-9d0b-6b3f2c1a8e47";

#[derive(Parser)]
#[command(version, about = "Command line for NVMe Key-Value namespaces")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve an emulated Key-Value namespace over NVMe/TCP, until SIGTERM or SIGINT
    Serve(serve::Serve),
    /// Connect this machine's kernel to an NVMe/TCP target and print the node
    Attach(attach::Attach),
    /// Disconnect a node that `attach` printed
    Detach(attach::Detach),
    /// Run the backend against a simulated, faulty device and check what it promises
    Simulate(simulate::Simulate),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Attach(attach) => attach.run(),
        Command::Detach(detach) => detach.run(),
        Command::Simulate(simulate) => simulate.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nvme-kv: {error}");
            ExitCode::FAILURE
        }
    }
}
