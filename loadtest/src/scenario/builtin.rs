macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../scenarios/", $name, ".yaml")))),*]
    };
}

/// Name and text, in the order in which they are listed.
pub const BUILT_IN: [(&str, &str); 14] = built_in![
    "connect-storm",
    "idle",
    "endpoint-churn",
    "route-change",
    "full-push",
    "rolling-restart",
    "replica-loss",
    "scale-out",
    "autoscale",
    "slow-readers",
    "nack",
    "many-fleets",
    "many-classes",
    "soak",
];

pub fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
