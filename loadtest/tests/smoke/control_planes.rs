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
    let programs = ["distributor", "translator"].map(heliograph_testing::program);
    // The other build is the same one.
    let before = programs[0].parent().unwrap().to_str().unwrap();
    let flags = ["--brief", "--without-peers", "--rows", "13", "--before", before];
    let ran = loadtest(&[&["bench"], &flags[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.text);
    let lines: Vec<_> = ran.text.lines().filter(|line| line.starts_with("| 13 |")).collect();
    assert_eq!(lines.len(), 4, "{}", ran.text);
    for line in lines {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        for memory in &columns[3..=4] {
            assert!(memory.ends_with("KB") || memory.ends_with("MB"), "{}", ran.text);
            // Memory that does not grow with routes is not that of the translator.
            assert!(!memory.starts_with('-'), "{}", ran.text);
        }
        // Ours over the other one.
        assert!(columns[6].parse::<f64>().is_ok_and(|ratio| ratio > 0.0), "{}", ran.text);
    }
}

#[test]
fn a_directory_without_the_programs_is_no_build() {
    let empty = tempfile::tempdir().unwrap();
    let ran = loadtest(&["bench", "--before", empty.path().to_str().unwrap()]);
    assert_eq!(ran.status, 1, "{}", ran.text);
    assert!(ran.text.contains("there is no distributor in /"), "{}", ran.text);
}
