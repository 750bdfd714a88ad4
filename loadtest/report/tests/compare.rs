//! Two reports, side by side.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixed;

use heliograph_report::{
    Bounds, BoundsError, Comparison, ComparisonRow, Measure, Report, RowStatus, Worse, compare,
};

#[test]
fn a_report_is_no_worse_than_itself() {
    let report = fixed::report(1);
    let comparison = compare(&report, &report, &bounds("1"));
    assert!(!comparison.regressed(), "{comparison}");
    assert_eq!(comparison.rows.len(), Measure::all().len());
    assert!(comparison.rows.iter().all(|row| row.ratio() == Some(1.0)));
    assert!(comparison.to_string().ends_with("no regression\n"));
}

#[test]
fn twice_as_slow_is_a_regression_and_twice_as_fast_is_none() {
    let (fast, slow) = (fixed::report(1), fixed::report(2));
    let worse = compare(&fast, &slow, &bounds("1.5"));
    assert!(worse.regressed());
    assert_eq!(row(&worse, "receipt-p99").status(), RowStatus::Regressed);
    assert!((row(&worse, "connect-p50").ratio().unwrap() - 2.0).abs() < 0.01);
    assert_eq!(row(&worse, "received").status(), RowStatus::Within);
    let text = worse.to_string();
    assert!(text.contains("worse than 1.5\n"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("regressed: connect-p50, "), "{text}");

    assert!(!compare(&slow, &fast, &bounds("1")).regressed());
    assert!(!compare(&fast, &slow, &bounds("2.1")).regressed());
}

#[test]
fn fewer_streams_are_worse() {
    let report = fixed::report(1);
    let mut fewer = report.clone();
    fewer.figures.series = Default::default();
    for _ in 0..50 {
        fewer.figures.opened(1_767_323_040, std::time::Duration::from_millis(1));
    }
    let comparison = compare(&report, &fewer, &bounds("1.9"));
    assert_eq!(row(&comparison, "streams").measure.worse, Worse::Less);
    assert_eq!(row(&comparison, "streams").status(), RowStatus::Regressed);
    let comparison = compare(&fewer, &report, &bounds("1.9"));
    assert_eq!(row(&comparison, "streams").status(), RowStatus::Within);
}

#[test]
fn the_first_violation_is_a_regression_under_any_bound() {
    let mut clean = fixed::report(1);
    clean.figures.violations = Default::default();
    let comparison = compare(&clean, &fixed::report(1), &bounds("1000"));
    assert_eq!(row(&comparison, "violations").ratio(), Some(f64::INFINITY));
    assert!(comparison.regressed());
}

#[test]
fn what_is_not_measured_any_more_cannot_pass() {
    let report = fixed::report(1);
    let unwatched = Report { servers: Vec::new(), per_stream: None, ..report.clone() };
    let comparison = compare(&report, &unwatched, &bounds("10"));
    assert_eq!(row(&comparison, "cpu").status(), RowStatus::Missing);
    assert!(comparison.regressed());
    let comparison = compare(&unwatched, &report, &bounds("10"));
    assert_eq!(row(&comparison, "cpu").status(), RowStatus::New);
    assert!(!comparison.regressed(), "{comparison}");
}

#[test]
fn runs_that_differ_in_more_than_the_server_are_noted() {
    let report = fixed::report(1);
    let mut other = report.clone();
    other.scenario.name = "idle".to_owned();
    other.machine.cores = 64;
    let notes = compare(&report, &other, &bounds("2")).notes;
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(compare(&report, &report, &bounds("2")).notes.is_empty());
}

#[test]
fn a_bound_may_be_for_one_figure() {
    let (fast, slow) = (fixed::report(1), fixed::report(2));
    let comparison = compare(&fast, &slow, &bounds("1.5, receipt-p99=2.5"));
    assert_eq!(row(&comparison, "receipt-p99").status(), RowStatus::Within);
    assert_eq!(row(&comparison, "receipt-p50").status(), RowStatus::Regressed);
}

#[test]
fn bounds_that_make_no_sense_are_refused() {
    for text in ["", "0.5", "NaN", "inf", "1.1,x", "1.1,errors=-1", "many"] {
        let error = text.parse::<Bounds>().unwrap_err();
        assert!(matches!(error, BoundsError::Factor(_)), "{text}: {error}");
    }
    let error = "1.1,speed=2".parse::<Bounds>().unwrap_err().to_string();
    assert!(error.starts_with("`speed` is not compared; these are: streams, "), "{error}");
}

fn bounds(text: &str) -> Bounds {
    text.parse().unwrap()
}

fn row<'a>(comparison: &'a Comparison, name: &str) -> &'a ComparisonRow {
    comparison.rows.iter().find(|row| row.measure.name == name).unwrap()
}
