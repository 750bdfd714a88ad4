//! A scenario, step by step.

use crate::run::{Changes, Finished, Run, RunError, RunOptions, RunPlan, Scale};
use crate::scenario::{Restart, Scenario, Step};
use crate::servers::{Stop, Target};
use crate::worker::Excuse;
use heliograph_report::Scenario as ScenarioInfo;
use std::time::Duration;

/// Plays a scenario against a target. An error before there is anything to report is returned; one after that is in the
/// report.
pub async fn play(
    scenario: &Scenario,
    fleet: Option<String>,
    command: Vec<String>,
    target: Target,
    options: RunOptions,
) -> Result<Finished, RunError> {
    let mut run = Run::start(plan(scenario, fleet, command), target, options).await?;
    match execute_steps(scenario, &mut run).await {
        // There are no figures worth a report.
        Err(error @ RunError::NoServer(_)) => Err(error),
        Ok(()) => Ok(run.finish().await),
        Err(error) => {
            run.record_error(&error);
            Ok(run.finish().await)
        }
    }
}

fn plan(scenario: &Scenario, fleet: Option<String>, command: Vec<String>) -> RunPlan {
    let info = ScenarioInfo {
        name: scenario.name.clone(),
        about: scenario.about.clone(),
        text: scenario.text.clone(),
    };
    RunPlan {
        command,
        processes: scenario.processes,
        fleets: scenario.fleets,
        fleet,
        protocols: scenario.protocol,
        streams_per_connection: scenario.streams_per_connection,
        population: scenario.population.clone(),
        ..RunPlan::new(info, scenario.clients, scenario.resources.clone())
    }
}

async fn execute_steps(scenario: &Scenario, run: &mut Run) -> Result<(), RunError> {
    let settle = scenario.end.settle.0;
    // Who is sent to another server loses its stream; so may some also when all are about even.
    let balances = scenario.balance.rebalance_rate > 0;
    let excuse = if balances { Excuse::SentAway } else { Excuse::Nothing };
    run.excuse(excuse).await?;
    run.phase("connect").await?;
    run.connect(scenario.clients, scenario.connect.rate).await?;
    run.settle(settle).await?;
    for _ in 0..scenario.repeat {
        for step in &scenario.steps {
            run.phase(&step.to_string()).await?;
            execute(step, settle, run).await?;
            run.excuse(excuse).await?;
        }
    }
    run.settle(settle).await
}

async fn execute(step: &Step, settle: Duration, run: &mut Run) -> Result<(), RunError> {
    match step {
        Step::Idle(span) => run.idle(*span).await,
        Step::Change { kind, every, count, reach } => {
            let (kind, every, count, reach) = (*kind, *every, *count, *reach);
            run.change(Changes { kind, every, count, reach }).await?;
            run.settle(settle).await
        }
        Step::Reconnect { share, over } => run.reconnect(*share, *over).await,
        Step::Restart { how, pause } => {
            run.excuse(Excuse::Anything).await?;
            match how {
                Restart::AllAtOnce => run.restart_servers().await?,
                Restart::OneByOne | Restart::Killed => {
                    let stop = if *how == Restart::Killed { Stop::Kill } else { Stop::Ask };
                    for server in 0..run.servers() {
                        run.restart_server(server, stop).await?;
                        run.settle(settle).await?;
                        run.idle(*pause).await?;
                    }
                }
            }
            run.settle(settle).await
        }
        Step::AddServers(count) => run.add_servers(*count).await,
        Step::Scale { to, within, most_opened } => {
            let (to, within, most_opened) = (*to, *within, *most_opened);
            run.excuse(Excuse::Anything).await?;
            run.scale(Scale { to, within, most_opened }).await?;
            run.settle(settle).await
        }
        Step::Behave { conduct, share } => run.behave(*share, conduct.clone()).await,
    }
}
