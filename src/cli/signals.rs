//! Ctrl-C and SIGTERM: the first requests a clean stop, the second ends the process. SIGUSR1 asks for
//! results now, where a command has a use for that.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use crate::error::{Error, Result};
use crate::progress::Progress;

/// A flag that the first Ctrl-C (or SIGTERM) sets; the second ends the process.
pub(super) fn watch() -> Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let fail = |error| Error::io("watch for", Path::new("signals"), error);
        signal_hook::flag::register_conditional_shutdown(signal, 1, interrupted.clone()).map_err(fail)?;
        signal_hook::flag::register(signal, interrupted.clone()).map_err(fail)?;
    }
    Ok(interrupted)
}

/// The progress of work that the first Ctrl-C (or SIGTERM) asks to stop.
pub(super) fn progress() -> Result<Progress> {
    Ok(Progress::with_stop_flag(watch()?))
}

/// A flag that SIGUSR1 sets.
pub(super) fn wanted_now() -> Result<Arc<AtomicBool>> {
    let wanted = Arc::new(AtomicBool::new(false));
    let fail = |error| Error::io("watch for", Path::new("signals"), error);
    signal_hook::flag::register(SIGUSR1, wanted.clone()).map_err(fail)?;
    Ok(wanted)
}
