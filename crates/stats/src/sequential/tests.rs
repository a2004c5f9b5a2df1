//! Decisions are exact in the end, and rarely wrong before.

use super::*;

fn gate(population: u64, bar: f64, values: GateValues) -> SequentialGate {
    SequentialGate::new(GateSettings { population, bar, alpha: 0.05, margin: 0.0, values }).unwrap()
}

#[test]
fn the_last_run_decides_exactly() {
    for values in [GateValues::Binary, GateValues::Share] {
        for (population, bar, right) in
            [(20, 0.85, 17), (20, 0.85, 16), (7, 0.5, 4), (7, 0.5, 3), (3, 1.0, 3), (1, 0.9, 0)]
        {
            let mut gate = gate(population, bar, values);
            // Wrong ones first: whatever was decided before, the end is exact.
            for at in 0..population {
                gate.observe(f64::from(u8::from(at >= population - right))).unwrap();
            }
            let expected =
                if right as f64 >= bar * population as f64 { GateDecision::Above } else { GateDecision::Below };
            assert_eq!(gate.decision(), expected, "{population} {bar} {right}");
            assert!(gate.observe(1.0).is_err() && gate.skip_run().is_err());
        }
    }
    // Three thirds are one.
    let mut thirds = gate(3, 1.0 / 3.0, GateValues::Share);
    for _ in 0..3 {
        thirds.observe(1.0 / 3.0).unwrap();
    }
    assert_eq!(thirds.decision(), GateDecision::Above);
}

#[test]
fn bad_settings_and_values_are_refused() {
    let good = GateSettings { population: 10, bar: 0.8, alpha: 0.05, margin: 0.0, values: GateValues::Binary };
    for bad in [
        GateSettings { population: 0, ..good },
        GateSettings { bar: 0.0, ..good },
        GateSettings { bar: 1.1, ..good },
        GateSettings { bar: f64::NAN, ..good },
        GateSettings { alpha: 0.0, ..good },
        GateSettings { margin: 0.2, ..good },
        GateSettings { margin: -0.1, ..good },
        GateSettings { margin: f64::NAN, ..good },
    ] {
        assert!(matches!(SequentialGate::new(bad), Err(SequentialError::InvalidSetting { .. })), "{bad:?}");
    }
    let mut binary = SequentialGate::new(good).unwrap();
    assert!(binary.observe(0.5).is_err() && binary.observe(f64::NAN).is_err());
    assert_eq!((binary.observed(), binary.estimate()), (0, None));
    assert!(gate(10, 0.8, GateValues::Share).observe(1.01).is_err());
}

#[test]
fn skipped_runs_leave_the_population() {
    let mut gate = gate(4, 0.5, GateValues::Binary);
    gate.observe(1.0).unwrap();
    assert_eq!(gate.skip_run().unwrap(), GateDecision::Undecided);
    // One of two: at the bar.
    gate.observe(0.0).unwrap();
    assert_eq!(gate.skip_run().unwrap(), GateDecision::Above);
}

fn monitor(bar: f64, direction: MonitorDirection) -> ScoreMonitor {
    ScoreMonitor::new(MonitorSettings { bar, direction, alpha: 0.05, window: 200 }).unwrap()
}

/// The number of scores after which the monitor fires.
fn scores_until_alarm(monitor: &mut ScoreMonitor, mut draw: impl FnMut() -> f64, max: usize) -> Option<usize> {
    (1..=max).find(|_| monitor.add(draw()).unwrap())
}

#[test]
fn monitors_rarely_fire_on_healthy_streams() {
    let mut random = fastrand::Rng::with_seed(1);
    // At the bar itself, which is the hardest healthy stream; right or wrong, and shares.
    for is_binary in [true, false] {
        let mut alarms = 0;
        for _ in 0..400 {
            let mut draw = || {
                if is_binary { f64::from(u8::from(random.f64() < 0.85)) } else { 0.7 + 0.3 * random.f64() }
            };
            alarms += usize::from(
                scores_until_alarm(&mut monitor(0.85, MonitorDirection::Below), &mut draw, 2_000).is_some(),
            );
            alarms += usize::from(
                scores_until_alarm(&mut monitor(0.85, MonitorDirection::Above), &mut draw, 2_000).is_some(),
            );
        }
        assert!(alarms <= 40, "{alarms} of 800");
    }
}

#[test]
fn monitors_find_a_late_regression() {
    let mut random = fastrand::Rng::with_seed(2);
    for healthy in [0, 1_000, 50_000] {
        let mut monitor = monitor(0.85, MonitorDirection::Below);
        for _ in 0..healthy {
            monitor.add(f64::from(u8::from(random.f64() < 0.95))).unwrap();
        }
        assert!(!monitor.is_alarming());
        let found =
            scores_until_alarm(&mut monitor, || f64::from(u8::from(random.f64() < 0.65)), 2_000).expect("an alarm");
        assert!(found < 300, "{healthy}: {found}");
        // It goes on until it is reset.
        assert!(monitor.add(1.0).unwrap());
        monitor.reset();
        assert!(!monitor.is_alarming() && monitor.count() == 0 && monitor.interval().is_none());
    }
}

#[test]
fn intervals_of_windows_follow_the_stream() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut monitor = monitor(0.5, MonitorDirection::Below);
    for _ in 0..1_000 {
        monitor.add(0.8 + 0.2 * random.f64()).unwrap();
    }
    assert!(monitor.is_above(0.8) && !monitor.is_below(0.95), "{:?}", monitor.interval());
    for _ in 0..400 {
        monitor.add(0.2 * random.f64()).unwrap();
    }
    let interval = monitor.interval().unwrap();
    assert!(interval.low < 0.1 && interval.high > 0.1 && interval.high < 0.35 && interval.count == 200, "{interval:?}");
    assert!(monitor.is_below(0.35) && monitor.is_alarming());
}

#[test]
fn a_stored_monitor_goes_on_as_if_nothing_had_happened() {
    let mut monitor = monitor(0.85, MonitorDirection::Below);
    let mut random = fastrand::Rng::with_seed(4);
    for at in 0..500 {
        let stored = serde_json::to_string(&monitor).unwrap();
        let mut restored: ScoreMonitor = serde_json::from_str(&stored).unwrap();
        let value = if at % 3 == 0 { 0.0 } else { random.f64() };
        assert_eq!(restored.add(value).unwrap(), monitor.add(value).unwrap());
        assert_eq!(restored, monitor);
        assert!(stored.len() < 1_000, "{}", stored.len());
    }
}

#[test]
fn monitors_refuse_bad_settings_and_values() {
    let good = MonitorSettings { bar: 0.8, direction: MonitorDirection::Below, alpha: 0.05, window: 100 };
    for bad in [
        MonitorSettings { bar: 0.0, ..good },
        MonitorSettings { bar: 1.0, ..good },
        MonitorSettings { bar: f64::NAN, ..good },
        MonitorSettings { alpha: 0.0, ..good },
        MonitorSettings { alpha: 0.5, ..good },
        MonitorSettings { window: 0, ..good },
    ] {
        assert!(matches!(ScoreMonitor::new(bad), Err(SequentialError::InvalidMonitor { .. })), "{bad:?}");
    }
    let mut monitor = ScoreMonitor::new(good).unwrap();
    assert!(monitor.add(1.1).is_err() && monitor.add(f64::NAN).is_err() && monitor.add(-0.1).is_err());
    assert_eq!(monitor.count(), 0);
}
