//! What the starter had and a jail must not have: open files, ignored signals, a place before others.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::Stage;

/// Descriptors 0, 1 and 2 are this program's: link, plan and messages.
const OWN: u32 = 3;

/// Lets go of it all. Init stays as long as the jail and would hold whatever the starter left open: the end of a pipe for
/// which somebody waits, a directory of the host's.
pub(crate) fn shed() -> Step<()> {
    let what = || "letting go of what the starter handed on".to_owned();
    sys::inherit::close_from(OWN).or_refuse(Stage::Start, UNEXPECTED, what)?;
    // Also that of ended children, which init waits for.
    sys::signal::reset_all().or_refuse(Stage::Start, UNEXPECTED, what)?;
    sys::inherit::usual_personality().or_refuse(Stage::Start, UNEXPECTED, what)?;
    // A starter with real-time or raised priority would let a jail starve the machine.
    if sys::inherit::is_real_time().or_refuse(Stage::Start, UNEXPECTED, what)? {
        sys::inherit::usual_scheduler().or_refuse(Stage::Start, UNEXPECTED, what)?;
    }
    if sys::inherit::is_first_at_disk().or_refuse(Stage::Start, UNEXPECTED, what)? {
        sys::inherit::usual_disk_turn().or_refuse(Stage::Start, UNEXPECTED, what)?;
    }
    if rustix::process::getpriority_process(None).or_refuse(Stage::Start, UNEXPECTED, what)? < 0 {
        rustix::process::setpriority_process(None, 0).or_refuse(Stage::Start, UNEXPECTED, what)?;
    }
    Ok(())
}
