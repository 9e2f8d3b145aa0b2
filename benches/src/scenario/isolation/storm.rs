//! A storm of retries with limits as they come, and with every one of them written away: that storm must keep itself alive, or the
//! scene proves nothing.

use std::time::Duration;

use anyhow::Result;
use spillgate_test_support::rig::tenant;
use spillgate_test_support::storm::{AS_THEY_COME, Course, Limits, NO_LIMITS, Pace, Storm};

use super::super::Settings;
use super::served::serve;
use crate::figure::{Asked, Figure, print_figures};
use crate::folder::Folder;

const SEATS: u32 = 8;
const HEALING: Duration = Duration::from_secs(5);

/// Runs both.
pub(super) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let down = settings.scale.down;
    let limited = storm(settings, "storm_limited", AS_THEY_COME, HEALING * 2)?;
    let control = storm(settings, "storm_without_limits", NO_LIMITS, down)?;
    let healed = limited.after(HEALING, HEALING * 2);
    let still_down = (0..=down.as_secs() - HEALING.as_secs())
        .map(|second| control.after(Duration::from_secs(second), Duration::from_secs(second) + HEALING))
        .fold(0.0, f64::max);
    let figures = vec![
        Figure::beside("storm", "tasks done from 5 s after healing", "tasks/s", &[healed], &[limited.before()])
            .asked(Asked::RatioAtLeast(0.95))
            .more(limited.to_string()),
        Figure::value("storm", "all is as before, after healing", "s", limited.recovery().as_secs_f64()).asked(Asked::AtMost(5.0)),
        Figure::beside("storm", "no limits: best 5 s after healing", "tasks/s", &[still_down], &[control.before()])
            .asked(Asked::RatioAtMost(0.5))
            .more(format!("for {down:?}; {control}")),
    ];
    print_figures(&format!("A storm of retries, {:?} of brown-out, then healed", settings.scale.brown_out), "before it", &figures);
    Ok(figures)
}

fn storm(settings: &Settings, table: &str, limits: Limits, after: Duration) -> Result<Storm> {
    let folder = Folder::new("storm")?;
    let pace = Pace::postgres(table);
    let rig = pace.rig();
    let pool = format!("{}pool = {{ max = {SEATS}{} }}", limits.database, limits.pool);
    let served = serve(settings, &folder, &[rig.database("main", &pool), tenant("agents", "agent", limits.tenant)], &rig.flows("main"))?;
    let course = Course { calm: settings.scale.window, brown_out: settings.scale.brown_out, after };
    Ok(pace.play(served.address(), &course))
}
