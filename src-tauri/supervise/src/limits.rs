//! Limits of a whole jail that neither its processes nor the kernel keep by themselves.

use jail_plan::{Guarantee, Report, Status};

/// Sets the rows of what a run's warden keeps on every machine: the clock, the bytes of the way out, the kept output.
pub fn kept_by_warden(report: &mut Report) {
    for (guarantee, how) in [
        (Guarantee::Wall, "the warden's clock"),
        (Guarantee::Bytes, "counted before they are carried"),
        (Guarantee::Output, "files of the warden's, of which the older half goes"),
    ] {
        report.keep(guarantee, how, Status::Full);
    }
}
