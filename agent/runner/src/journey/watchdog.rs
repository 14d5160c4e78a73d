//! The machine's watchdog, armed while a test kernel runs: a kernel that hangs is reset by hardware, without anybody's
//! help. Never disarmed there: a shutdown that hangs ends the same way.

use crate::system;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

const TIMEOUT_S: i32 = 60;
const PAUSE: Duration = Duration::from_secs(10);

/// Keeps it fed for the rest of this process' life. False where there is none, or where something else (systemd)
/// feeds it already.
pub fn start() -> bool {
    let Ok(mut device) = File::options().write(true).open(system::path("/dev/watchdog")) else {
        return false;
    };
    set_timeout(&device, TIMEOUT_S);
    std::thread::spawn(move || {
        // Any byte but 'V' feeds it (Documentation/watchdog/watchdog-api.rst).
        while device.write_all(b"1").is_ok() {
            std::thread::sleep(PAUSE);
        }
    });
    true
}

/// A device that takes no other timeout keeps its own, which `PAUSE` suits as a rule (they begin at 16 s).
fn set_timeout(device: &File, seconds: i32) {
    if !system::is_played() {
        crate::guest::syscalls::set_watchdog_timeout(device.as_raw_fd(), seconds);
    }
}
