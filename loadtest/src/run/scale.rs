use super::{Changes, Run, RunError, during_or_failed};
use crate::worker::WorkerOrder;
use crate::workload::UpdateKind;
use heliograph_report::Series;
use std::time::Duration;
use tokio::time::Instant;

/// Another number of servers, as an autoscaler wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub to: usize,
    /// How long streams may take to even out.
    pub within: Duration,
    /// How many streams may be opened in a second.
    pub most_opened: Option<u64>,
}

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often endpoints change meanwhile: no client may miss a change while it moves.
const CHANGE: Duration = Duration::from_secs(5);

/// By how much a server may be above the mean: what replicas tolerate among themselves, and one stream that is cut off.
const TOLERANCE: f64 = 0.1;
const LEAST_TOLERANCE: f64 = 10.0;
const ROUNDED: f64 = 1.0;

impl Run {
    /// Servers come, or go and drain, until there are so many. Returns when the streams of all clients are spread evenly over
    /// them, as the servers themselves tell an autoscaler.
    pub async fn scale(&mut self, scale: Scale) -> Result<(), RunError> {
        // What was opened is counted in whole seconds, and this one has what came before.
        let first_second = super::watch::unix_ms() / 1000 + 1;
        let until = (first_second * 1000).saturating_sub(super::watch::unix_ms());
        self.idle(Duration::from_millis(until)).await?;
        let begun = Instant::now();
        let before = self.servers();
        if scale.to > before {
            self.add_servers(scale.to - before).await?;
        } else {
            self.retire_servers(before - scale.to).await?;
        }
        let streams = self.until_even(scale.within).await?;
        let took = begun.elapsed().as_secs();
        let opened = most_opened(&self.figures().await?.series, first_second);
        let (least, most) = (streams.iter().min(), streams.iter().max());
        self.notes.push(format!(
            "{before} to {} servers: after {took} s each has {} to {} streams; at most {opened} streams a second were opened",
            scale.to,
            least.copied().unwrap_or(0),
            most.copied().unwrap_or(0),
        ));
        match scale.most_opened {
            Some(most) if opened > most => Err(RunError::Storm { opened, most }),
            _ => Ok(()),
        }
    }

    /// Clients are led to the others from now on, and those that leave let their streams go.
    async fn retire_servers(&mut self, count: usize) -> Result<(), RunError> {
        self.cost.close();
        // What they used up to now stays counted.
        self.watch.sample().await?;
        let retired = self.target.retire(count)?;
        retired.names().for_each(|name| self.watch.retires(name));
        self.workers.send(&WorkerOrder::Servers(self.target.addresses())).await?;
        Ok(during_or_failed(&self.stop, &self.reports, retired.end()).await??)
    }

    async fn until_even(&mut self, within: Duration) -> Result<Vec<u64>, RunError> {
        let begun = Instant::now();
        let mut changed = begun;
        loop {
            let streams = self.target.streams().await.unwrap_or_default();
            let clients = self.clients;
            if is_even(&streams, clients) {
                return Ok(streams);
            }
            if begun.elapsed() > within {
                return Err(RunError::Uneven { within, streams, clients });
            }
            if changed.elapsed() >= CHANGE {
                changed = Instant::now();
                self.change(Changes::one(UpdateKind::Endpoint)).await?;
            }
            self.idle(POLL_INTERVAL).await?;
        }
    }
}

/// Every client has a stream, and no server has more than its share.
fn is_even(streams: &[u64], clients: usize) -> bool {
    let mean = clients as f64 / streams.len() as f64;
    let share = mean + (mean * TOLERANCE).max(LEAST_TOLERANCE) + ROUNDED;
    streams.iter().sum::<u64>() == clients as u64 && streams.iter().all(|it| *it as f64 <= share)
}

/// The most streams that were opened in one second, from this one on.
fn most_opened(series: &Series, first_second: u64) -> u64 {
    let points = series.points().filter(|(second, _)| *second >= first_second);
    points.map(|(_, point)| point.opened.div_ceil(series.step().max(1))).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_even_when_all_are_there_and_none_has_too_many() {
        assert!(is_even(&[1000, 1000], 2000));
        assert!(is_even(&[1101, 899], 2000));
        assert!(!is_even(&[1102, 898], 2000), "a tenth and what is cut off");
        assert!(!is_even(&[1000, 999], 2000), "one client has no stream");
        assert!(is_even(&[21, 0, 9], 30) && !is_even(&[22, 0, 8], 30), "ten are not worth it");
        assert!(!is_even(&[], 30));
    }
}
