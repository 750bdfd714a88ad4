use crate::program::loadtest;

/// A tenth of everything over a real API: that every step comes to its end, not how long it takes.
#[test]
fn ours_is_measured_over_a_kubernetes_api() {
    for beside in ["distributor", "translator"] {
        heliograph_testing::program(beside);
    }
    let ran = loadtest(&["bench", "--brief", "--without-peers", "--rows", "10"]);
    assert_eq!(ran.status, 0, "{}", ran.text);
    let lines: Vec<_> = ran.text.lines().filter(|line| line.starts_with("| ")).collect();
    let ours = |line: &&str| line.split('|').nth(3).map(str::trim).is_some_and(|it| it != "–");
    // Two are the head.
    assert_eq!(lines.iter().filter(|line| ours(line)).count(), 2 + 3, "{}", ran.text);
    let idle = lines.iter().find(|line| line.contains("changed nothing")).unwrap();
    assert!(idle.ends_with("| reached |"), "{}", ran.text);
}

/// A tenth of the routes: that everything is published, the translator comes to rest, and a route adds something.
#[test]
fn the_memory_of_a_translator_is_measured_over_directories() {
    for beside in ["distributor", "translator"] {
        heliograph_testing::program(beside);
    }
    let ran = loadtest(&["bench", "--brief", "--without-peers", "--rows", "13"]);
    assert_eq!(ran.status, 0, "{}", ran.text);
    let lines = ran.text.lines().filter(|line| line.starts_with("| 13 |"));
    let ours: Vec<_> = lines.filter_map(|line| line.split('|').nth(3).map(str::trim)).collect();
    assert_eq!(ours.len(), 4, "{}", ran.text);
    let known = |value: &&&str| value.ends_with("KB") || value.ends_with("MB");
    assert_eq!(ours.iter().filter(known).count(), 4, "{}", ran.text);
    // Memory that does not grow with routes is not that of the translator.
    assert!(!ours.iter().any(|value| value.starts_with('-')), "{}", ran.text);
}
