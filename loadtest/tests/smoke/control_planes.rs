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
