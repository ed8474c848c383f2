//! The subcommands: one module each, with its arguments, its `run`, and its JSON output.

mod appliance;
mod capture;
mod control;
mod demo;
mod explain;
mod generate;
mod guest;
mod host;
mod interference;
mod lease;
mod model;
mod mrc;
mod pause;
mod place;
mod plan;
mod prewarm;
mod replay;
mod repro;
mod reserve;
mod route;
mod serve;
mod sim;
mod simulate;
mod status;
mod trace;
mod watch;

use crate::failure::Failure;

/// What `forebay` can do. The help of a command is the documentation of its arguments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Look at block I/O traces and convert them
    #[command(subcommand)]
    Trace(trace::TraceCommand),
    Mrc(mrc::MrcArgs),
    /// Describe workloads: fit models to traces, generate traces from them, compare the two
    #[command(subcommand)]
    Model(model::ModelCommand),
    Generate(generate::GenerateArgs),
    Plan(plan::PlanArgs),
    Simulate(simulate::SimulateArgs),
    Replay(replay::ReplayArgs),
    Sim(sim::SimArgs),
    /// Run the evaluation of a published paper again, beside its figures
    #[command(subcommand)]
    Repro(repro::ReproCommand),
    Demo(demo::DemoArgs),
    Capture(capture::CaptureArgs),
    Serve(serve::ServeArgs),
    Watch(watch::WatchArgs),
    Lease(lease::LeaseArgs),
    Route(route::RouteArgs),
    Appliance(appliance::ApplianceArgs),
    Control(control::ControlArgs),
    Host(host::HostArgs),
    #[command(hide = true)]
    Guest(guest::GuestArgs),
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    Interference(interference::InterferenceArgs),
    Reserve(reserve::ReserveArgs),
    Place(place::PlaceArgs),
    Prewarm(prewarm::PrewarmArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
}

/// Runs `command` to its end.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Trace(command) => trace::run(command),
        Command::Mrc(args) => mrc::run(&args),
        Command::Model(command) => model::run(command),
        Command::Generate(args) => generate::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Repro(command) => repro::run(command),
        Command::Demo(args) => demo::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Lease(args) => lease::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Appliance(args) => appliance::run(&args),
        Command::Control(args) => control::run(&args),
        Command::Host(args) => host::run(&args),
        Command::Guest(args) => guest::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Interference(args) => interference::run(&args),
        Command::Reserve(args) => reserve::run(&args),
        Command::Place(args) => place::run(&args),
        Command::Prewarm(args) => prewarm::run(&args),
        Command::Pause(args) => pause::pause(&args),
        Command::Resume(args) => pause::resume(&args),
    }
}
