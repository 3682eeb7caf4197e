//! Capabilities, all of them, for good.

use crate::error::{OrRefuse as _, Step, UNEXPECTED};
use jail_plan::Stage;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Gives up every capability that this process has in its user namespace and could ever get back by an exec.
pub(crate) fn drop_all() -> Step<()> {
    let what = || "giving up capabilities".to_owned();
    // By number up to the kernel's last: a newer kernel may have some that have no name here.
    for number in 0..u64::BITS {
        match rustix::thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Err(Errno::INVAL) if number > 0 => break,
            other => other.or_refuse(Stage::Privileges, UNEXPECTED, what)?,
        }
    }
    drop_own()
}

/// Gives up what an ordinary user may still have in the host's own user namespace (ambient capabilities, say).
pub(crate) fn drop_own() -> Step<()> {
    let what = || "giving up capabilities".to_owned();
    rustix::thread::clear_ambient_capability_set().or_refuse(Stage::Privileges, UNEXPECTED, what)?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).or_refuse(Stage::Privileges, UNEXPECTED, what)?;
    rustix::thread::set_no_new_privs(true).or_refuse(Stage::Privileges, UNEXPECTED, || "setting no_new_privs".into())
}
