//! `warmpath ctl maintenance` and `warmpath ctl endpoint`: taking the gateway, or hosts, out of service and back. Owns
//! their words; must never report as done what the gateway refused.

use super::{Client, CtlFault, Printer, client};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

const MAINTENANCE: &str = "/netlox/v1/maintenance";
const HOST_STATE: &str = "/netlox/v1/config/endpointhoststate";

/// `ctl maintenance`.
#[derive(Args, Clone, Debug)]
pub struct MaintenanceArgs {
    /// Begin or end it; without, tell what there is.
    #[arg(value_enum)]
    switch: Option<Switch>,
    /// Seconds that what runs may take before it is told as late; nothing is cut.
    #[arg(long, value_name = "SECONDS")]
    drain_timeout: Option<u64>,
}

/// Whether.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Begin.
    On,
    /// End.
    Off,
}

/// `ctl endpoint`.
#[derive(Subcommand, Clone, Debug)]
pub enum EndpointVerb {
    /// Take a host out of service, or back into it; without arguments, those that are out.
    State {
        /// An endpoint's address, or address and port.
        #[arg(requires = "state")]
        host: Option<String>,
        /// What it shall be.
        #[arg(value_enum)]
        state: Option<HostState>,
        /// Seconds that what runs may take before it is told as late; nothing is cut.
        #[arg(long, value_name = "SECONDS")]
        drain_timeout: Option<u64>,
    },
}

/// What a host may be.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// In service.
    Active,
    /// It gets no new requests; what runs there ends there.
    Draining,
}

pub(super) fn maintenance(
    client: &Client,
    args: &MaintenanceArgs,
    printer: &mut Printer,
) -> Result<(), CtlFault> {
    let Some(switch) = args.switch else {
        return printer.answer(&client.get(MAINTENANCE)?, shown);
    };
    let mut body = json!({"enabled": switch == Switch::On});
    if let Some(seconds) = args.drain_timeout {
        body["drain_timeout_seconds"] = seconds.into();
    }
    tell(client, "PUT", MAINTENANCE, &body)?;
    printer.said(match switch {
        Switch::On => "maintenance begins",
        Switch::Off => "maintenance is over",
    })
}

pub(super) fn endpoint(client: &Client, verb: &EndpointVerb, printer: &mut Printer) -> Result<(), CtlFault> {
    let EndpointVerb::State { host, state, drain_timeout } = verb;
    let (Some(host), Some(state)) = (host, state) else {
        return printer.answer(&client.get(HOST_STATE)?, hosts);
    };
    let word = match state {
        HostState::Active => "active",
        HostState::Draining => "draining",
    };
    let mut body = json!({"hostName": host, "state": word});
    if let Some(seconds) = drain_timeout {
        body["drain_timeout_seconds"] = (*seconds).into();
    }
    tell(client, "POST", HOST_STATE, &body)?;
    printer.said(&format!("{host} is {word}"))
}

fn tell(client: &Client, method: &str, path: &str, body: &Value) -> Result<(), CtlFault> {
    let (status, answer) = client.call(method, path, &body.to_string())?;
    client::accepted(status, answer).map(drop)
}

fn shown(answer: &Value) -> String {
    let refusing = if answer["refusing_new_inference"] == true { "refused" } else { "taken" };
    let late = if answer["drain_deadline_exceeded"] == true { ", longer than it was given" } else { "" };
    format!(
        "{}: new requests are {refusing}, {} run{late}\n",
        answer["maintenance_state"].as_str().unwrap_or(""),
        answer["in_flight_requests"]
    )
}

fn hosts(answer: &Value) -> String {
    let line = |host: &Value| {
        let late = if host["drain_deadline_exceeded"] == true { ", longer than it was given" } else { "" };
        format!(
            "{}: draining, {} run{late}\n",
            host["hostName"].as_str().unwrap_or(""),
            host["in_flight_requests"]
        )
    };
    let lines: String = answer["hosts"].as_array().into_iter().flatten().map(line).collect();
    if lines.is_empty() { "all hosts are in service\n".into() } else { lines }
}
