use super::{Amount, Contender, Figure};

/// A line of the table.
pub(super) struct Line {
    pub(super) row: u8,
    pub(super) what: &'static str,
    /// Of the peers, that which makes them look best; of ours, the first.
    pub(super) figures: &'static [Figure],
    pub(super) unit: Unit,
    /// Who ours is compared with.
    pub(super) peer: Option<Contender>,
    pub(super) target: Target,
}

#[derive(Clone, Copy)]
pub(super) enum Unit {
    Bytes,
    Microseconds,
    Seconds,
    Times,
    Count,
}

/// The target for Heliograph's figure.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// At most so many times the peer.
    AtMost(f64),
    /// At least so many times the peer.
    AtLeast(f64),
    /// At most this, whatever the peer has.
    Own(f64),
    /// For scale.
    None,
}

const fn line(row: u8, what: &'static str, figures: &'static [Figure], unit: Unit) -> Line {
    Line { row, what, figures, unit, peer: Some(Contender::Snapshot), target: Target::None }
}

const fn plane(row: u8, what: &'static str, figures: &'static [Figure], unit: Unit) -> Line {
    line(row, what, figures, unit).against(Contender::EnvoyGateway)
}

impl Line {
    const fn at_most(self, ratio: f64) -> Self {
        Self { target: Target::AtMost(ratio), ..self }
    }

    const fn at_least(self, ratio: f64) -> Self {
        Self { target: Target::AtLeast(ratio), ..self }
    }

    const fn own(self, most: f64) -> Self {
        Self { target: Target::Own(most), ..self }
    }

    const fn against(self, peer: Contender) -> Self {
        Self { peer: Some(peer), ..self }
    }
}

pub(super) const LINES: &[Line] = &[
    line(
        1,
        "idle memory a stream, 1,000 clusters and endpoints",
        &[Figure::Memory(Amount::Thousand), Figure::MemoryCollected(Amount::Thousand)],
        Unit::Bytes,
    )
    .at_most(0.08),
    line(
        1,
        "the same, without the peers' forced collection",
        &[Figure::Memory(Amount::Thousand)],
        Unit::Bytes,
    ),
    line(
        1,
        "idle memory a stream, 5,000 clusters and endpoints",
        &[Figure::Memory(Amount::FiveThousand), Figure::MemoryCollected(Amount::FiveThousand)],
        Unit::Bytes,
    )
    .at_most(0.025),
    line(2, "idle memory a stream, nothing to serve, bare node", &[Figure::Empty], Unit::Bytes)
        .at_most(0.6),
    line(2, "the same with TLS, ours mutual", &[Figure::EmptyTls], Unit::Bytes).at_most(0.7),
    line(2, "the same with the node of a real Envoy", &[Figure::EmptyRealNode], Unit::Bytes)
        .at_most(0.13),
    line(
        3,
        "CPU a stream for one endpoint change, 1,000 clusters, 10,000 streams",
        &[Figure::ChangeCpu(Amount::Thousand)],
        Unit::Microseconds,
    )
    .at_most(0.03),
    line(
        3,
        "the same, 5,000 clusters, 1,000 streams",
        &[Figure::ChangeCpu(Amount::FiveThousand)],
        Unit::Microseconds,
    )
    .at_most(0.005),
    line(4, "last acknowledgement of that change", &[Figure::LastAck], Unit::Seconds).at_most(0.06),
    line(4, "a newcomer during the push, median", &[Figure::NewcomerMedian], Unit::Seconds),
    line(4, "a newcomer during the push, 99 %", &[Figure::NewcomerLate], Unit::Seconds)
        .at_most(0.01),
    line(
        5,
        "CPU a stream for 1 MB in state of the world, 5 % do not read",
        &[Figure::FullCpu],
        Unit::Microseconds,
    )
    .against(Contender::Linear)
    .at_most(0.5),
    line(5, "growth of the peak of memory by it", &[Figure::FullGrowth], Unit::Bytes)
        .against(Contender::Linear)
        .at_most(0.1),
    line(11, "all come back: CPU a stream", &[Figure::ReconnectCpu], Unit::Microseconds)
        .at_most(0.2),
    line(11, "time until all are back", &[Figure::ReconnectTime], Unit::Seconds).at_most(0.2),
    line(11, "memory afterwards over before", &[Figure::ReconnectMemory], Unit::Times).own(1.05),
    line(11, "resources sent again, a stream", &[Figure::ReconnectResent], Unit::Count).own(0.0),
    line(11, "state of the world: bytes sent a stream", &[Figure::ReconnectBytes], Unit::Bytes)
        .at_most(0.02),
    line(
        12,
        "clients until 2 GiB, 6,000 clusters and endpoints",
        &[Figure::Survivors],
        Unit::Count,
    )
    .at_least(20.0),
    plane(6, "one HTTPRoute added at 5,000: CPU", &[Figure::RouteCpu], Unit::Microseconds)
        .at_most(0.01),
    plane(6, "until a proxy has it", &[Figure::RouteTime], Unit::Seconds),
    plane(6, "bytes sent to a proxy for it", &[Figure::RouteBytes], Unit::Bytes),
    // The target leaves out the copying of finished bytes; what is measured does not.
    plane(6, "that CPU at 5,000 routes over 500", &[Figure::RouteGrowth], Unit::Times).own(1.2),
    plane(6, "units translated for it, at 5,000 over 500", &[Figure::UnitsGrowth], Unit::Times),
    plane(
        6,
        "ten routes within 100 ms: responses with route tables",
        &[Figure::BurstResponses],
        Unit::Count,
    )
    .own(2.0),
    plane(
        6,
        "1,000 Gateways with 10 routes each: fleets that one changed route touches",
        &[Figure::TouchedFleets],
        Unit::Count,
    )
    .own(1.0),
    plane(
        7,
        "one endpoint changed at 5,000 routes: CPU",
        &[Figure::EndpointCpu],
        Unit::Microseconds,
    )
    .at_most(0.003),
    plane(7, "until a proxy has it", &[Figure::EndpointTime], Unit::Seconds).at_most(0.02),
    plane(7, "until the store has it", &[Figure::EndpointStored], Unit::Seconds).own(0.020),
    plane(
        7,
        "cold start with 5,000 routes: from all objects known to the first snapshot",
        &[Figure::ColdStart],
        Unit::Seconds,
    )
    .own(5.0),
    plane(8, "four changes a second: CPU a minute", &[Figure::ChurnCpu], Unit::Seconds)
        .at_most(0.03),
    plane(8, "the most memory of all programs", &[Figure::ChurnMemory], Unit::Bytes).at_most(0.15),
    plane(8, "memory of the translator afterwards", &[Figure::TranslatorMemory], Unit::Bytes)
        .own(300.0 * 1024.0 * 1024.0),
    plane(
        9,
        "routes one by one through an Envoy: until it answers, median",
        &[Figure::ProbeMedian],
        Unit::Seconds,
    ),
    plane(9, "the same, 99 %", &[Figure::ProbeLate], Unit::Seconds).at_most(0.1),
    plane(9, "wrong answers meanwhile", &[Figure::ProbeWrong], Unit::Count).own(0.0),
    plane(9, "the median of the last 20 over the first 20", &[Figure::ProbeGrowth], Unit::Times)
        .own(1.3),
    plane(
        10,
        "1,000 routes at once: until every status says so",
        &[Figure::AttachTime],
        Unit::Seconds,
    )
    .at_most(0.1),
    plane(10, "writes of statuses", &[Figure::AttachWrites], Unit::Count),
    plane(10, "those among them that changed nothing", &[Figure::AttachIdleWrites], Unit::Count)
        .own(0.0),
    plane(
        13,
        "memory of the translator with 1,000 routes, each with a Service and an EndpointSlice",
        &[Figure::DirectoryMemory(1_000)],
        Unit::Bytes,
    ),
    plane(13, "the same with 5,000 routes", &[Figure::DirectoryMemory(5_000)], Unit::Bytes),
    plane(13, "the same with 20,000 routes", &[Figure::DirectoryMemory(20_000)], Unit::Bytes),
    plane(
        13,
        "what a route adds to it, from 1,000 to 20,000 routes",
        &[Figure::RouteMemory],
        Unit::Bytes,
    )
    .own(15e3),
];
